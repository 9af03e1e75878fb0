import { Parser } from 'htmlparser2';
import { unreadable } from './document.js';

/** An element of an XML document. Names are without their prefix; attributes have both forms. */
export interface XmlElement {
  readonly name: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly children: (XmlElement | string)[];
}

/** Elements within elements. */
const MAX_DEPTH = 500;

/**
 * Reads XML. Entities of a document type are not replaced. `take` gets each element at its end; one for which it
 * returns true is left out of the tree. Error: WARMPATH_UNREADABLE_FILE for too deep nesting.
 */
export function parseXml(text: string, take: (element: XmlElement) => boolean = () => false): XmlElement {
  const root: XmlElement = { name: '', attributes: {}, children: [] };
  const open = [root];
  const parser = new Parser(
    {
      onopentag(name, attributes) {
        for (const key of Object.keys(attributes))
          if (key.includes(':')) attributes[localName(key)] ??= attributes[key]!;
        const element: XmlElement = { name: localName(name), attributes, children: [] };
        open.at(-1)!.children.push(element);
        if (open.push(element) > MAX_DEPTH) throw unreadable(`its XML is nested deeper than ${MAX_DEPTH} elements`);
      },
      ontext(part) {
        open.at(-1)!.children.push(part);
      },
      onclosetag() {
        if (open.length > 1 && take(open.pop()!)) open.at(-1)!.children.pop();
      },
    },
    { xmlMode: true },
  );
  parser.end(text);
  return root;
}

function localName(name: string): string {
  return name.slice(name.indexOf(':') + 1);
}

/** The element itself, or the first one of this name within it. */
export function find(element: XmlElement | undefined, name: string): XmlElement | undefined {
  if (element === undefined || element.name === name) return element;
  for (const child of elementsOf(element)) {
    const found = find(child, name);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** All elements of a name within one, none within another. */
export function findAll(element: XmlElement | undefined, name: string): XmlElement[] {
  return elementsOf(element).flatMap((child) => (child.name === name ? [child] : findAll(child, name)));
}

export function elementsOf(element: XmlElement | undefined): XmlElement[] {
  return (element?.children ?? []).filter((child) => typeof child !== 'string');
}

/** The text of an element as it stands. */
export function textOf(element: XmlElement | undefined): string {
  return (element?.children ?? []).map((child) => (typeof child === 'string' ? child : textOf(child))).join('');
}
