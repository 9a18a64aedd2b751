// The pack `slack`: posts messages and lists channels. The host adds the token to the requests, and this code never has it.
import { Failure, http, pack, type Task } from "flowcell-sdk";

const API = "https://slack.com/api";
// The number of channels that Slack recommends for a page.
const PAGE = 200;

interface Post {
  channel: string;
  text: string;
  thread?: string;
}

interface Channel {
  id: string;
  name: string;
  is_private: boolean;
}

function post({ input }: Task<Post>) {
  const { channel, text, thread } = input;
  const posted = call("chat.postMessage", { channel, text, thread_ts: thread });
  return { channel: posted.channel as string, message: posted.ts as string };
}

function channels({ input }: Task<{ limit?: number }>) {
  const { limit = 1000 } = input;
  const found: Channel[] = [];
  let cursor: string | undefined;
  do {
    const page = call("conversations.list", { limit: Math.min(limit, PAGE), exclude_archived: true, cursor });
    found.push(...page.channels);
    // An empty cursor is the end.
    cursor = page.response_metadata?.next_cursor || undefined;
  } while (cursor && found.length < limit);
  const shown = found.slice(0, limit).map(({ id, name, is_private }) => ({ id, name, private: is_private }));
  return { channels: shown, more: cursor !== undefined || found.length > limit };
}

// Calls a method of the Web API. Slack answers most refusals with the status 200, and with `ok: false`.
function call(method: string, values: { [name: string]: string | number | boolean | undefined }) {
  const answer = http.send({
    method: "POST",
    url: `${API}/${method}`,
    headers: { "content-type": "application/x-www-form-urlencoded" },
    text: form(values),
  });
  if (answer.status === 429) {
    const seconds = Number(answer.headers.find(([name]) => name === "retry-after")?.[1] ?? 1);
    const options = { retryable: true, retryAfterMs: seconds * 1000 };
    throw new Failure("slack_rate_limited", `Slack wants no ${method} for ${seconds} s`, options);
  }
  if (answer.status !== 200) {
    const retryable = answer.status >= 500;
    throw new Failure("slack_unavailable", `Slack answered ${method} with the status ${answer.status}`, { retryable });
  }
  const told = answer.json();
  if (!told.ok) throw new Failure("slack_refused", `Slack refuses ${method}: ${told.error}`, { details: { error: told.error } });
  return told;
}

function form(values: { [name: string]: string | number | boolean | undefined }): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => `${name}=${encodeURIComponent(value!)}`).join("&");
}

export const node = pack({ "slack.post": post, "slack.channels": channels });
