import { effect } from '@preact/signals';
import { render } from 'preact';
import { Page } from './page.tsx';
import { applyTheme, feed, view } from './state.ts';
import './style.css';

const TITLES = { overview: 'Overview', tree: 'Knowledge tree', requests: 'Requests', system: 'System' } as const;

applyTheme();
effect(() => {
  document.title = `${TITLES[view.value]} · Warmpath`;
});
render(<Page />, document.getElementById('page')!);
feed.connect();
