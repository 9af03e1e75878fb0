import { effect } from '@preact/signals';
import { render } from 'preact';
import { Page, VIEW_NAMES } from './page.tsx';
import { applyTheme, feed, view } from './state.ts';
import './style.css';

applyTheme();
effect(() => {
  document.title = `${VIEW_NAMES[view.value]} · Warmpath`;
});
render(<Page />, document.getElementById('page')!);
feed.connect();
