// The pack `feeds`: reads feeds in RSS and Atom with the npm package `rss-parser`.
import Parser from "rss-parser";
import { Failure, pack } from "flowcell-sdk";

const TYPES = "application/rss+xml, application/atom+xml, application/xml;q=0.9, text/xml;q=0.9";
const parser = new Parser();

async function read({ input }) {
  const { url, limit = 100 } = input;
  const answer = await fetch(url, { headers: { accept: TYPES } });
  if (!answer.ok) {
    const retryable = answer.status === 429 || answer.status >= 500;
    throw new Failure("feed_status", `${url} has the status ${answer.status}`, { retryable });
  }
  const { title = "", items } = await parsed(await answer.text());
  return { title, items: items.slice(0, limit).map(shown) };
}

async function parsed(text) {
  try {
    return await parser.parseString(text);
  } catch (error) {
    throw new Failure("feed_unreadable", error.message);
  }
}

// Feeds of different formats have different members.
function shown({ title, link, guid, id, isoDate, contentSnippet, summary }) {
  return {
    title: title ?? "",
    link: link ?? null,
    id: guid ?? id ?? link ?? null,
    published: isoDate ?? null,
    text: contentSnippet ?? summary ?? "",
  };
}

export const node = pack({ "feeds.read": read });
