/**
 * The style sheet of a report page. System fonts, light and dark by the reader's setting; the palette is Okabe and
 * Ito's, darkened or lightened until each colour has a contrast of 3 : 1 against its background.
 */
export const STYLE = `
:root {
  color-scheme: light dark;
  --paper: #fdfdfc; --ink: #1b1e23; --ink-soft: #565d68; --line: #dfe2e6; --panel: #f3f4f5;
  --series-1: #0067a8; --series-2: #c44e00; --series-3: #007d5c; --series-4: #a8478a; --series-5: #8a6a00; --series-6: #3d4451;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #15181c; --ink: #e9ebee; --ink-soft: #a3abb6; --line: #333941; --panel: #1f2429;
    --series-1: #5fb4ee; --series-2: #f08a4b; --series-3: #2fbf95; --series-4: #dd8fc2; --series-5: #e0b53a; --series-6: #c3cad4;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif; }
main { max-width: 792px; margin: 0 auto; padding: 40px 36px 64px; }
h1 { font-size: 15px; font-weight: 600; margin: 0 0 10px; color: var(--ink-soft); }
.finding { font-size: 24px; line-height: 1.35; font-weight: 600; margin: 0 0 28px; text-wrap: pretty; }
h2 { font-size: 20px; line-height: 1.3; margin: 52px 0 8px; }
p { margin: 0 0 12px; max-width: 68ch; }
h1, .finding, h2, p, li, dt, dd, summary, footer { overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: minmax(0, max-content) minmax(0, 1fr); gap: 4px 24px; margin: 0 0 16px; font-size: 14px; }
dt { color: var(--ink-soft); }
dd { margin: 0; }
pre { background: var(--panel); border-radius: 6px; padding: 10px 14px; margin: 0; font: 13px/1.5 ui-monospace, 'SF Mono', Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
pre span { display: inline-block; max-width: 100%; vertical-align: top; }
figure { margin: 24px 0 0; }
.chart-title { font-size: 15px; font-weight: 600; margin: 0 0 8px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, 340px); gap: 20px 40px; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font-family: inherit; }
.narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 20px; list-style: none; margin: 0 0 6px; padding: 0; font-size: 13px; }
.legend li { max-width: 100%; display: flex; align-items: center; gap: 8px; }
.legend svg { flex: none; }
.scroll { overflow-x: auto; margin-top: 12px; container-type: inline-size; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--series-1); outline-offset: 2px; }
table { border-collapse: collapse; font-size: 13px; line-height: 1.4; font-variant-numeric: tabular-nums; width: 100%; }
caption { max-width: 100cqi; text-align: left; color: var(--ink-soft); padding-bottom: 6px; }
th, td { padding: 5px 0 5px 14px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; white-space: normal; min-width: 96px; overflow-wrap: anywhere; }
th { font-weight: 600; }
tbody th { font-weight: 400; }
thead th { vertical-align: bottom; white-space: normal; min-width: 76px; }
.grouped thead th { min-width: 0; }
.grouped th, .grouped td { padding-left: 10px; font-size: 12px; }
.grouped th:first-child { padding-left: 0; }
th[colspan] { border-bottom: 0; padding-bottom: 0; }
thead td { border: 0; padding: 0; }
th, td, dd, code, li { unicode-bidi: isolate; }
details { margin-top: 12px; font-size: 14px; }
summary { cursor: pointer; color: var(--ink-soft); }
.notes { font-size: 14px; color: var(--ink-soft); padding-left: 18px; margin: 16px 0 0; }
.notes li { margin-bottom: 6px; max-width: 76ch; }
footer { margin-top: 56px; padding-top: 16px; border-top: 1px solid var(--line); font-size: 13px; color: var(--ink-soft); }
@media (max-width: 680px) {
  main { padding: 24px 16px 40px; }
  .finding { font-size: 20px; }
  .wide { display: none; }
  .narrow { display: block; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; }
}
@media print { main { max-width: none; padding: 0; } figure, tr { break-inside: avoid; } }
`;
