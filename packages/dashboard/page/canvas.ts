import { useEffect, useRef } from 'preact/hooks';
import { colours } from './state.ts';

/** A canvas to draw on, in CSS pixels, and the colours of the style sheet. */
export interface Surface {
  readonly context: CanvasRenderingContext2D;
  readonly width: number;
  readonly height: number;
  readonly colour: (property: string) => string;
  readonly font: string;
}

/**
 * Keeps a canvas drawn: once a frame at most, after each rendering, and when its size or the colours change. The
 * canvas has the size of its box, and as many pixels as the screen has there.
 */
export function useCanvas(draw: (surface: Surface) => void) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const latest = useRef(draw);
  const frame = useRef(0);
  latest.current = draw;
  const redraw = () => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => {
      if (canvas.current !== null) paint(canvas.current, latest.current);
    });
  };
  colours.value;
  useEffect(redraw);
  useEffect(() => {
    const observer = new ResizeObserver(redraw);
    observer.observe(canvas.current!);
    return () => {
      observer.disconnect();
      cancelAnimationFrame(frame.current);
    };
  }, []);
  return canvas;
}

function paint(canvas: HTMLCanvasElement, draw: (surface: Surface) => void): void {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = devicePixelRatio;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext('2d')!;
  const style = getComputedStyle(canvas);
  const known = new Map<string, string>();
  const colour = (property: string) => {
    const value = known.get(property) ?? style.getPropertyValue(property).trim();
    known.set(property, value);
    return value;
  };
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  draw({ context, width, height, colour, font: `12px ${style.fontFamily}` });
}
