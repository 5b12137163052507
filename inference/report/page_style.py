"""How a page looks: light and dark as the reader's system is set, on a phone, and on paper."""

__all__ = ["STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1a1a1a; --faint: #444444; --box: #f4f4f4; --line: #bbbbbb; --link: #00558b;
  --good: #007a55; --bad: #b34700; --open: #6a6a6a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181b; --ink: #e8e8e8; --faint: #b8b8b8; --box: #24272b; --line: #55585c; --link: #7cc4f5;
    --good: #4fc99a; --bad: #f0a060; --open: #9a9a9a;
  }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
nav a { display: inline-block; margin-right: 1rem; padding: .2rem 0; }
p { max-width: 45rem; overflow-wrap: break-word; }
a { color: var(--link); }
pre { padding: .75rem; background: var(--box); font-size: .85rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.verdict { padding: .6rem .9rem; border-left: 6px solid var(--open); background: var(--box); }
.verdict.good { border-color: var(--good); }
.verdict.bad { border-color: var(--bad); }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th[scope=row], th:first-child { text-align: left; font-weight: 500; }
td { font-weight: 400; }
th.words { text-align: left; }
td.words { text-align: left; white-space: normal; overflow-wrap: break-word; }
figure { margin: 1.2rem 0; }
img { max-width: 100%; height: auto; background: #ffffff; }
figcaption { max-width: 45rem; font-size: .9rem; color: var(--faint); }
@media (prefers-color-scheme: dark) { img { filter: brightness(.87); } }
@media (max-width: 36rem) {
  main { padding: .8rem; }
  figure { overflow-x: auto; }
  .wide img { max-width: 34rem; }
  figcaption, caption { position: sticky; left: 0; max-width: calc(100vw - 1.6rem); }
  h1 { font-size: 1.3rem; }
  th, td { padding: .2rem .4rem; }
}
@media print {
  :root { --paper: #ffffff; --ink: #000000; --faint: #333333; --box: #ffffff; --line: #999999; }
  nav { display: none; }
  main { max-width: none; padding: 0; }
  figure, .verdict, tr { break-inside: avoid; }
  h2, caption, thead { break-after: avoid; }
  img { filter: none; }
  .scroll { overflow: visible; }
  table { font-size: .75rem; }
}
"""
