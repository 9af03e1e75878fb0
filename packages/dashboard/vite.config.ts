import { defineConfig, type Plugin } from 'vite';

/** Puts the one script and the one style sheet into the page, so that it asks for nothing. */
function inlined(): Plugin {
  return {
    name: 'inlined',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const page = bundle['index.html'];
      if (page?.type !== 'asset') throw new Error('the build has no index.html');
      let html = String(page.source);
      for (const [name, file] of Object.entries(bundle)) {
        if (file === page) continue;
        // A script ends where `</script` stands, wherever that is.
        const text = file.type === 'chunk' ? file.code.replaceAll('</script', '<\\/script') : String(file.source);
        const [reference, element] =
          file.type === 'chunk'
            ? [`<script type="module" crossorigin src="/${name}"></script>`, `<script type="module">${text}</script>`]
            : [`<link rel="stylesheet" crossorigin href="/${name}">`, `<style>${text}</style>`];
        if (!html.includes(reference)) throw new Error(`the page does not load ${name}`);
        html = html.replace(reference, () => element);
        delete bundle[name];
      }
      page.source = html;
    },
  };
}

/**
 * What the page's charts have no use for in uPlot: it is written as one function that reads its options when it runs,
 * so that no bundler can know. Each text must be there, or the build fails: a new version is looked at.
 */
const UNUSED_IN_UPLOT: readonly (readonly [text: string | RegExp, instead: string])[] = [
  // Bars, steps, splines, joins and other functions for callers.
  [/uPlot\.assign = assign;.*(?=export \{)/s, ''],
  // The calendar: axes get their times from `chart.tsx`.
  [/let isTime = sc\.time;/g, 'const isTime = false;'],
  ['let isTime = mode == 1 && scales[s.scale].time;', 'const isTime = false;'],
  [/const \[ timeIncrsMs.*?genTimeStuffs\(1e-3\);/s, ''],
  [/const _tzDate {2}=.*?(?=const activeIdxs)/s, ''],
  // Selecting with the mouse.
  ['if (select.show && dragging) {', 'if (false) {'],
  ['onMouse(mousedown,  over, mouseDown);', ''],
  ['onMouse(dblclick, over, dblClick);', ''],
  [/events\.(?:mousedown|mouseup|dblclick) = \w+;/g, ''],
  // Charts that follow each other's cursor.
  [/const syncOpts = assign\(.*?self\.pub = pub;/s, 'const syncOpts = {}, syncKey = null, pubSync = () => {};'],
  ['sync.unsub(self);', ''],
  // Its own legend, and scatter plots.
  ['const showLegend = legend.show;', 'const showLegend = false;'],
  [/const mode = (?:self|u)\.mode;/g, 'const mode = 1;'],
];

/** uPlot without them. */
function smallUPlot(): Plugin {
  return {
    name: 'small-uplot',
    transform(code, id) {
      if (!id.endsWith('uPlot.esm.js')) return undefined;
      return UNUSED_IN_UPLOT.reduce((text, [unused, instead]) => {
        const changed = text.replace(unused, instead);
        if (changed === text) throw new Error(`uPlot has no ${unused}: see UNUSED_IN_UPLOT`);
        return changed;
      }, code);
    },
  };
}

export default defineConfig({
  root: 'page',
  logLevel: 'warn',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [smallUPlot(), inlined()],
  // Other packages may bring another Preact, which `@preact/signals` would then extend in its place.
  resolve: { dedupe: ['preact'] },
  build: {
    outDir: '../dist',
    emptyOutDir: false,
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    cssTarget: ['chrome125', 'firefox125', 'safari17.5'],
    // Scripts of modules run when the page is there, wherever they stand.
    assetsInlineLimit: 0,
  },
});
