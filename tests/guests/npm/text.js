// Packages as authors would use them. Each function returns what `cases/text.yaml` expects.
import { pack } from "flowcell-sdk";
import * as cheerio from "cheerio";
import { XMLBuilder, XMLParser } from "fast-xml-parser";
import Handlebars from "handlebars";
import { marked } from "marked";
import Mustache from "mustache";
import RssParser from "rss-parser";
import sanitizeHtml from "sanitize-html";
import slugify from "slugify";
import TurndownService from "turndown";
import YAML from "yaml";

const FEED = `<?xml version="1.0"?><rss version="2.0"><channel><title>News</title>
<item><title>One</title><link>https://example.com/1</link></item><item><title>Two</title></item></channel></rss>`;

const uses = {
  cheerio: () => cheerio.load("<ul><li>one</li><li class=b>two</li></ul>")("li.b").text(),
  "fast-xml-parser"() {
    const parsed = new XMLParser({ ignoreAttributes: false }).parse('<a id="1"><b>x</b><b>y</b></a>');
    return [parsed, new XMLBuilder({ ignoreAttributes: false }).build(parsed)];
  },
  handlebars: () => Handlebars.compile("{{#each names}}<{{this}}>{{/each}}")({ names: ["Ada", "B&C"] }),
  marked: () => marked.parse("# Hi *there*"),
  mustache: () => Mustache.render("{{#people}}{{name}};{{/people}}", { people: [{ name: "Ada" }, { name: "B" }] }),
  async "rss-parser"() {
    const feed = await new RssParser().parseString(FEED);
    return [feed.title, feed.items.map(({ title }) => title)];
  },
  "sanitize-html": () => sanitizeHtml('<b onclick="x()">Hi</b><script>alert(1)</script><a href="javascript:x">y</a>'),
  slugify: () => slugify("Crème Brûlée & Co", { lower: true }),
  turndown: () => new TurndownService().turndown("<h1>Hi</h1><p><strong>there</strong></p>"),
  yaml: () => [YAML.parse("a: [1, two]\nb: { c: yes }"), YAML.stringify({ a: [1] })],
};

export const node = pack({ "npm.use": ({ input }) => uses[input.package]() });
