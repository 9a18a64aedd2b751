// The pack `markdown`.
import { Marked } from "marked";
import { pack } from "../../../sdk/js/index.js";

// Where links and images may lead.
const ALLOWED = /^(https?:|mailto:|#|\/(?!\/))/i;

const renderer = {
  html: ({ text }) => escaped(text),
  link({ href, tokens }) {
    const text = this.parser.parseInline(tokens);
    return ALLOWED.test(href) ? `<a href="${escaped(href)}">${text}</a>` : text;
  },
  image: ({ href, text }) => (ALLOWED.test(href) ? `<img src="${escaped(href)}" alt="${escaped(text)}">` : escaped(text)),
};

const marked = new Marked({ renderer });

function toHtml({ input }) {
  const tokens = marked.lexer(input.text);
  const headings = tokens.filter(({ type }) => type === "heading").map(({ depth, text }) => ({ depth, text }));
  return { html: marked.parser(tokens), headings };
}

function escaped(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return text.replace(/[&<>"]/g, (char) => names[char]);
}

export const node = pack({ "markdown.to_html": toHtml });
