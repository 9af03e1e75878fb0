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

export default defineConfig({
  root: 'page',
  logLevel: 'warn',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  plugins: [inlined()],
  // Other packages may bring another Preact, which `@preact/signals` would then extend in its place.
  resolve: { dedupe: ['preact'] },
  build: {
    outDir: '../dist',
    emptyOutDir: false,
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    // Scripts of modules run when the page is there, wherever they stand.
    assetsInlineLimit: 0,
  },
});
