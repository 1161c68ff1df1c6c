// A page as Markdown: read(html, url) gives its text. It runs in an isolate with a limit of processor time, so nothing
// here has to be fast for hostile pages; but nothing recurses, since pages may be as deep as they like.
import { parse } from "parse5";

// An isolate's result may have a megabyte of JSON.
const MAX_CHARS = 300_000;

const SKIPPED = new Set([
  "script", "style", "svg", "math", "template", "noscript", "iframe", "object", "embed", "canvas", "audio", "video",
  "nav", "head", "select", "button", "input", "textarea", "dialog", "link", "meta",
]);
const BLOCKS = new Set([
  "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption",
  "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "li", "main", "ol", "p", "pre",
  "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul", "caption",
]);

const attribute = (node, name) => node.attrs?.find((a) => a.name === name)?.value;

function isHidden(node) {
  if (SKIPPED.has(node.tagName)) return true;
  if (attribute(node, "hidden") !== undefined || attribute(node, "aria-hidden") === "true") return true;
  return /display\s*:\s*none|visibility\s*:\s*hidden/i.test(attribute(node, "style") ?? "");
}

/** An address as it can be followed; undefined if it is none. */
function resolve(href, base) {
  try {
    const url = new URL(href, base);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** What is written: lines with a prefix (quotes, list items), with spaces and empty lines taken together. */
class Writer {
  constructor() {
    this.lines = [];
    this.line = "";
    this.prefixes = [];
    this.bullet = null;
    this.blank = true; // the last line is empty, or there is none
    this.gapPrefix = null; // of the empty line that is due; null: none is
  }

  text(text) {
    const flat = text.replace(/[ \t\r\n\f\u00a0]+/g, " ");
    this.line += this.line === "" || this.line.endsWith(" ") ? flat.trimStart() : flat;
  }

  raw(text) {
    this.line += text;
  }

  /** Ends the line that is open. */
  break() {
    const line = this.line.trimEnd();
    this.line = "";
    if (line !== "") this.put(line);
  }

  put(line) {
    if (this.gapPrefix !== null && !this.blank) this.lines.push(this.gapPrefix.trimEnd());
    this.gapPrefix = null;
    let prefix = this.prefixes.join("");
    if (this.bullet !== null) {
      prefix = prefix.slice(0, prefix.length - this.bullet.length) + this.bullet;
      this.bullet = null;
    }
    this.lines.push(prefix + line);
    this.blank = false;
  }

  /** An empty line is due, in what is outermost of the places that asked for one. */
  gap() {
    const prefix = this.prefixes.join("");
    if (this.gapPrefix === null || prefix.length < this.gapPrefix.length) this.gapPrefix = prefix;
  }

  block() {
    this.break();
    this.gap();
  }
}

const HEADINGS = { h1: "# ", h2: "## ", h3: "### ", h4: "#### ", h5: "##### ", h6: "###### " };

/** The text of a subtree as it stands, for code and cells. */
function plain(node) {
  const stack = [node];
  let text = "";
  while (stack.length > 0) {
    const at = stack.pop();
    if (at.nodeName === "#text") text += at.value;
    else if (at.tagName === "br") text += "\n";
    else if (at.childNodes && (at === node || !isHidden(at))) for (let i = at.childNodes.length; i-- > 0; ) stack.push(at.childNodes[i]);
  }
  return text;
}

function fence(w, text) {
  let longest = 2;
  for (const run of text.match(/`+/g) ?? []) longest = Math.max(longest, run.length);
  const ticks = "`".repeat(longest + 1);
  w.block();
  w.put(ticks);
  for (const line of text.replace(/^\n|\s+$/g, "").split("\n")) w.put(line);
  w.put(ticks);
  w.gap();
}

/** Rows of a table that has no table inside. */
function rowsOf(table) {
  const rows = [];
  const stack = [table];
  while (stack.length > 0) {
    const at = stack.pop();
    if (at !== table && at.tagName === "table") return null;
    if (at.tagName === "tr") rows.push((at.childNodes ?? []).filter((c) => c.tagName === "td" || c.tagName === "th"));
    for (let i = (at.childNodes?.length ?? 0); i-- > 0; ) stack.push(at.childNodes[i]);
  }
  return rows.filter((row) => row.length > 0);
}

function writeTable(w, table) {
  const rows = rowsOf(table);
  if (!rows || rows.length < 2 || Math.max(...rows.map((r) => r.length)) < 2) return false;
  const columns = Math.max(...rows.map((r) => r.length));
  const cell = (node) => (node ? plain(node).replace(/\s+/g, " ").trim().replaceAll("|", "\\|") : "");
  w.block();
  for (const [i, row] of rows.entries()) {
    w.put(`| ${Array.from({ length: columns }, (_, k) => cell(row[k])).join(" | ")} |`);
    if (i === 0) w.put(`|${" --- |".repeat(columns)}`);
  }
  w.gap();
  return true;
}

/** Enters an element: true if its children are to be walked. */
function enter(w, node, state) {
  const tag = node.tagName;
  if (tag === "pre") return fence(w, plain(node)), false;
  if (tag === "table" && writeTable(w, node)) return false;
  if (tag === "br") return w.break(), false;
  if (tag === "hr") return w.block(), w.put("---"), w.gap(), false;
  if (tag === "img") {
    const alt = (attribute(node, "alt") ?? "").trim();
    if (alt) w.text(`![${alt}]`);
    return false;
  }
  if (tag === "code" || tag === "kbd" || tag === "samp") {
    const text = plain(node).replace(/\s+/g, " ");
    if (text.trim()) w.raw(text.includes("`") ? `\`\` ${text} \`\`` : `\`${text}\``);
    return false;
  }
  if (tag === "li") {
    const list = state.lists.at(-1);
    w.break();
    w.bullet = list?.ordered ? `${list.next++}. ` : "- ";
    w.prefixes.push(" ".repeat(w.bullet.length));
    return true;
  }
  if (tag === "ul" || tag === "ol") {
    if (state.lists.length === 0) w.block();
    else w.break();
    state.lists.push({ ordered: tag === "ol", next: Number.parseInt(attribute(node, "start") ?? "1", 10) || 1 });
    return true;
  }
  if (tag === "blockquote") return w.block(), w.prefixes.push("> "), true;
  if (HEADINGS[tag]) return w.block(), w.raw(HEADINGS[tag]), true;
  if (tag === "dt" || tag === "dd" || tag === "tr" || tag === "td" || tag === "th") return w.break(), true;
  if (BLOCKS.has(tag)) return w.block(), true;
  if (tag === "strong" || tag === "b") return w.raw("**"), true;
  if (tag === "a") state.links.push(w.line.length);
  return true;
}

function leave(w, node, state, base) {
  const tag = node.tagName;
  if (tag === "li") {
    w.break();
    w.bullet = null;
    w.prefixes.pop();
  } else if (tag === "ul" || tag === "ol") {
    w.break();
    state.lists.pop();
    if (state.lists.length === 0) w.gap();
  } else if (tag === "blockquote") {
    w.break();
    w.prefixes.pop();
    w.gap();
  } else if (HEADINGS[tag]) {
    if (w.line === HEADINGS[tag]) w.line = "";
    w.block();
  } else if (BLOCKS.has(tag)) {
    if (tag === "dt" || tag === "dd" || tag === "tr" || tag === "td" || tag === "th") w.break();
    else w.block();
  } else if (tag === "strong" || tag === "b") {
    if (w.line.endsWith("**") && !w.line.endsWith("****")) w.line = w.line.replace(/\*\*$/, "");
    else w.raw("**");
  } else if (tag === "a") {
    const begin = state.links.pop();
    const href = resolve(attribute(node, "href") ?? "", base);
    const text = w.line.slice(begin);
    const words = text.trim();
    if (href && attribute(node, "href") && words && begin <= w.line.length && !attribute(node, "href").startsWith("#"))
      w.line = `${w.line.slice(0, begin)}${text.startsWith(" ") ? " " : ""}[${words}](${href})`;
  }
}

function title(document) {
  const stack = [document];
  while (stack.length > 0) {
    const at = stack.pop();
    if (at.tagName === "title") return plain(at).replace(/\s+/g, " ").trim();
    if (at.tagName !== "body" && at.tagName !== "svg") for (const c of at.childNodes ?? []) stack.push(c);
  }
  return "";
}

export function markdown(html, url) {
  const document = parse(html);
  const w = new Writer();
  const state = { lists: [], links: [] };
  const name = title(document);
  if (name) w.text(name), w.block();
  const stack = [{ node: document }];
  while (stack.length > 0) {
    const top = stack.at(-1);
    if (top.children === undefined) {
      const { node } = top;
      top.children = [];
      if (node.nodeName === "#text") w.text(node.value);
      else if (node.tagName === undefined) top.children = node.childNodes ?? [];
      else if (!isHidden(node) && enter(w, node, state)) {
        top.children = node.childNodes;
        top.entered = true;
      }
      top.at = 0;
    }
    if (top.at < top.children.length) {
      stack.push({ node: top.children[top.at++] });
    } else {
      if (top.entered) leave(w, top.node, state, url);
      stack.pop();
    }
  }
  w.break();
  return w.lines.join("\n").replace(/\n{3,}/g, "\n\n").trim();
}

export default {
  read(html, url) {
    return markdown(html, url).slice(0, MAX_CHARS);
  },
};
