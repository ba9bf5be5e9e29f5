"""The style sheet of reports: legible from 600 to 1,200 pixels, in light and in dark."""

STYLE = """
:root { color-scheme: light dark; --type: system-ui, -apple-system, "Segoe UI", sans-serif;
  --page: #ffffff; --card: #f6f7f8; --ink: #1d2327; --soft: #5b666d; --grid: #e3e7ea;
  --accent: #0b6e99; --quiet: #9db8c4; --link: #0b5f86;
  --good: #1f6b2e; --good-card: #e8f4ea; --bad: #a3231c; --bad-card: #fcebe9;
  --open: #7a5600; --open-card: #fbf3de;
  --series-0: #0b6e99; --series-1: #c2571a; --series-2: #3f7d2c; --series-3: #84509b;
  --series-4: #a87400; --series-5: #c2356f; --series-6: #4c6472; --series-7: #1f9e89; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14181b; --card: #1e2429; --ink: #e8ecef; --soft: #a3afb7; --grid: #323b42;
  --accent: #4fb3dd; --quiet: #47616f; --link: #7cc7ea;
  --good: #8fd69b; --good-card: #18301d; --bad: #ff9a90; --bad-card: #3b1a18;
  --open: #edc76a; --open-card: #332a12;
  --series-0: #56b7e0; --series-1: #f08a4b; --series-2: #86c96f; --series-3: #c795dd;
  --series-4: #e3b23c; --series-5: #f47fae; --series-6: #a9bcc7; --series-7: #4fd1ba; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { font: 17px/1.55 var(--type); color: var(--ink); background: var(--page);
  max-width: 1128px; margin: 0 auto; padding: 2rem 1.5rem 3rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0; }
h2 { font-size: 1.45rem; margin: 3rem 0 0.3rem; padding-top: 1.2rem;
  border-top: 1px solid var(--grid); }
h3 { font-size: 1.15rem; margin: 2rem 0 0.3rem; }
h4 { font-size: 1.05rem; margin: 0 0 0.3rem; }
p { margin: 0.3rem 0 0.9rem; max-width: 50rem; }
a { color: var(--link); }
code { font: 0.93em ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.when { font-size: 1.15rem; color: var(--soft); margin: 0.4rem 0 1.2rem; max-width: none; }
.when b { color: var(--ink); }
.verdict { border-left: 6px solid; border-radius: 6px; padding: 0.9rem 1.2rem; margin: 1rem 0; }
.verdict p { margin: 0.2rem 0 0; max-width: none; }
.verdict p:first-child { font-size: 1.25rem; font-weight: 650; margin: 0; }
.verdict.good { background: var(--good-card); border-color: var(--good); }
.verdict.bad { background: var(--bad-card); border-color: var(--bad); }
.verdict.open { background: var(--open-card); border-color: var(--open); }
.verdict.good p:first-child { color: var(--good); }
.verdict.bad p:first-child { color: var(--bad); }
.verdict.open p:first-child { color: var(--open); }
.totals { display: grid; grid-template-columns: repeat(auto-fill, minmax(160px, 1fr)); gap: 0.8rem;
  margin: 1.2rem 0; padding: 0; }
.totals div { background: var(--card); border-radius: 8px; padding: 0.8rem 1rem; }
.totals dd { font-size: 1.75rem; font-weight: 650; line-height: 1.2; margin: 0;
  font-variant-numeric: tabular-nums; }
.totals dt { font-weight: 600; } .totals small { display: block; color: var(--soft);
  font-size: 0.9rem; font-weight: 400; line-height: 1.35; overflow-wrap: anywhere; }
.totals div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
nav { font-size: 1rem; } nav a { margin-right: 1.1rem; white-space: nowrap; }
.missing, .note, footer { color: var(--soft); }
svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
.wide svg.way { max-width: none; margin: 0.6rem 0; }
table { border-collapse: collapse; font-size: 1rem; }
td, th { text-align: left; padding: 0.35rem 1.2rem 0.35rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: baseline; }
th { color: var(--soft); font-weight: 600; }
td.number, td.count { font-variant-numeric: tabular-nums; color: var(--soft); }
td.count { text-align: right; color: var(--ink); }
.name { white-space: nowrap; font-weight: 600; }
.seq { color: var(--soft); font-variant-numeric: tabular-nums; }
.fault { background: var(--bad-card); color: var(--bad); border-radius: 4px;
  padding: 0.05rem 0.5rem; font-weight: 600; white-space: nowrap; }
article { background: var(--card); border-radius: 8px; padding: 1.1rem 1.3rem; margin: 1rem 0; }
article:target, tr:target td { outline: 2px solid var(--accent); outline-offset: 2px; }
tr:target td { outline: none; background: var(--card); }
article .number { color: var(--soft); } article .back { float: right; font-weight: 400; }
.steps td { border: 0; padding: 0.12rem 1.2rem 0.12rem 0; }
.steps .time { text-align: right; color: var(--soft); font-variant-numeric: tabular-nums;
  white-space: nowrap; }
.steps .meant td:last-child { font-weight: 650; }
.steps .missing td:last-child { font-weight: 650; color: var(--bad); }
.way path { fill: none; stroke: var(--soft); stroke-width: 2; }
.way rect { fill: var(--page); stroke: var(--soft); stroke-width: 1.5; }
.way text { fill: var(--ink); font: 15px var(--type); text-anchor: middle; }
.way .broker rect { stroke: var(--accent); stroke-width: 2; }
.way .other rect, .way path.other { stroke-opacity: 0.45; } .way .other text { fill: var(--soft); }
.way path.meant, .way .meant rect { stroke: var(--accent); stroke-width: 2.5; }
.way path.missing { stroke-width: 2.5; stroke: var(--bad); stroke-dasharray: 5 5; }
.way path.cross { stroke: var(--bad); stroke-width: 3; }
.way .missing rect { stroke: var(--bad); stroke-width: 2.5; stroke-dasharray: 5 4; }
.way .missing text { fill: var(--bad); }
footer { margin-top: 3rem; font-size: 0.95rem; }
@media print { article { break-inside: avoid; } nav { display: none; } }
"""
