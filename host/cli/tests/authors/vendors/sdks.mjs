// Uses a server with the SDK of its vendor, and prints what the SDK has understood. The arguments are the folder of the
// packages, the name of the server, and its address.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, name, address] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(createRequire(`${modules}/`).resolve(name)));

async function slack() {
  const { WebClient, LogLevel } = await load("@slack/web-api");
  const options = { slackApiUrl: `${address}/api/`, retryConfig: { retries: 0 }, rejectRateLimitedCalls: true, logLevel: LogLevel.ERROR };
  const refused = (call) => call.then(
    () => null,
    ({ code, data, retryAfter }) => ({ code, error: data?.error, retryAfter }),
  );
  const proof = { client_id: "flowcell", client_secret: "client-secret", grant_type: "refresh_token" };
  const renewed = await new WebClient(undefined, options).oauth.v2.access({ ...proof, refresh_token: "xoxe-1-0" });
  const client = new WebClient(renewed.access_token, options);
  const channels = [];
  for await (const page of client.paginate("conversations.list", { limit: 2, exclude_archived: true })) channels.push(...page.channels);
  const posted = await client.chat.postMessage({ channel: "C1", text: "Grüße & more", thread_ts: "1.1" });
  return {
    refresh: renewed.refresh_token,
    channels: channels.map(({ id, name, is_private }) => ({ id, name, private: is_private })),
    posted: { channel: posted.channel, message: posted.ts },
    unknown: await refused(client.chat.postMessage({ channel: "nowhere", text: "Hello" })),
    busy: await refused(client.chat.postMessage({ channel: "busy", text: "Hello" })),
    stranger: await refused(new WebClient("xoxb-wrong", options).conversations.list()),
  };
}

async function feeds() {
  const { default: Parser } = await load("rss-parser");
  const { title, items } = await new Parser().parseURL(address);
  return { title, items };
}

async function pages() {
  const { Octokit } = await load("@octokit/core");
  const { paginateRest } = await load("@octokit/plugin-paginate-rest");
  const octokit = new (Octokit.plugin(paginateRest))({ baseUrl: address, auth: "github-token-0" });
  return { items: await octokit.paginate("GET /repos/{owner}/{repo}/issues", { owner: "acme", repo: "shop", per_page: 2 }) };
}

console.log(JSON.stringify(await { slack, feeds, pages }[name]()));
