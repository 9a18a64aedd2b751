// The pack `pages`: reads an API page by page. Each answer names the next page in a `Link` header (RFC 8288).
import { Failure, http, pack } from "flowcell-sdk";

function list({ input }) {
  const { limit = 1000, maxPages = 100 } = input;
  const items = [];
  let pages = 0;
  let url = input.url;
  while (url !== undefined && items.length < limit && pages < maxPages) {
    const answer = http.send({ url, headers: { accept: "application/json" } });
    for (const item of itemsOf(answer, url)) items.push(item);
    pages += 1;
    url = next(answer, url);
  }
  return { items: items.slice(0, limit), pages, more: url !== undefined || items.length > limit };
}

function itemsOf(answer, url) {
  if (answer.status !== 200) {
    const retryable = answer.status === 429 || answer.status >= 500;
    throw new Failure("page_status", `${url} has the status ${answer.status}`, { retryable });
  }
  const items = answer.json();
  if (!Array.isArray(items)) throw new Failure("page_without_list", `${url} is not a list`);
  return items;
}

// Returns the address of the next page, or undefined after the last one. It may be relative.
function next(answer, url) {
  const links = answer.headers.filter(([name]) => name === "link").flatMap(([, value]) => value.split(/,(?=\s*<)/));
  const target = links.find((link) => /;\s*rel="?next"?\s*(;|$)/i.test(link))?.match(/<([^>]*)>/)?.[1];
  if (target === undefined) return undefined;
  const found = new URL(target, url);
  if (found.origin !== new URL(url).origin) throw new Failure("page_elsewhere", `the next page is at ${found.origin}`);
  return found.href;
}

export const node = pack({ "pages.list": list });
