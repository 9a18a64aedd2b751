// The providers' own SDKs talk to the fake: what they make of its answers is printed, one JSON object a line.
// usage: node judge.mjs NODE_MODULES BASE_URL
import { createRequire } from "node:module";

const [modules, base] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const Anthropic = require("@anthropic-ai/sdk").default;
const OpenAI = require("openai").default;

const settings = { apiKey: "test-key", maxRetries: 0 };
const anthropic = (more) => new Anthropic({ ...settings, baseURL: base, ...more });
const openai = (more) => new OpenAI({ ...settings, baseURL: `${base}/v1`, ...more });

const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const user = (content) => [{ role: "user", content }];
const messages = (content) => ({ model: "m", max_tokens: 99, messages: user(content) });
const chat = (content) => ({ model: "m", messages: user(content) });
const responses = (content) => ({ model: "m", input: user(content), store: false });

async function all(stream, pick) {
  let text = "";
  for await (const event of stream) text += pick(event) || "";
  return text;
}

const rest = (stream) => all(stream, () => "");

const dialects = {
  messages: {
    async text() {
      const seen = {};
      const stream = await anthropic().messages.create({ ...messages("text"), stream: true });
      seen.text = await all(stream, (e) => {
        if (e.type === "message_start") seen.input = e.message.usage.input_tokens;
        if (e.type === "message_delta") seen.stop = e.delta.stop_reason;
        return e.type === "content_block_delta" ? e.delta.text : "";
      });
      return seen;
    },
    async stream() {
      const stream = anthropic().messages.stream(messages("stream"));
      const deltas = await all(stream, (e) => e.type === "content_block_delta" && e.delta.text);
      const whole = await stream.finalMessage();
      return { deltas, text: whole.content[0].text, stop: whole.stop_reason, output: whole.usage.output_tokens };
    },
    async tools() {
      const tools = [{ name: "weather", description: "Tells.", input_schema: schema }];
      const first = await anthropic().messages.stream({ ...messages("tools"), tools }).finalMessage();
      const call = first.content.find((block) => block.type === "tool_use");
      const result = { type: "tool_result", tool_use_id: call.id, content: "rain" };
      const history = [...user("tools"), { role: "assistant", content: first.content }, { role: "user", content: [result] }];
      const last = await anthropic().messages.stream({ ...messages(""), messages: history, tools }).finalMessage();
      return { name: call.name, input: call.input, stop: first.stop_reason, text: last.content[0].text };
    },
    ask: async (content, more) => rest(await anthropic(more).messages.create({ ...messages(content), stream: true })),
    async broken() {
      return anthropic().messages.stream(messages("broken")).finalMessage();
    },
    wrong: () => anthropic().messages.create({ ...messages("wrong"), max_tokens: 0, stream: true }),
  },
  chat: {
    async text() {
      const seen = {};
      const options = { stream: true, stream_options: { include_usage: true } };
      const stream = await openai().chat.completions.create({ ...chat("text"), ...options });
      seen.text = await all(stream, (e) => {
        seen.stop ??= e.choices[0]?.finish_reason ?? undefined;
        seen.input ??= e.usage?.prompt_tokens;
        return e.choices[0]?.delta.content;
      });
      return seen;
    },
    async stream() {
      const stream = openai().chat.completions.stream({ ...chat("stream"), stream_options: { include_usage: true } });
      const deltas = await all(stream, (e) => e.choices[0]?.delta.content);
      const whole = await stream.finalChatCompletion();
      const [choice] = whole.choices;
      return { deltas, text: choice.message.content, stop: choice.finish_reason, output: whole.usage.completion_tokens };
    },
    async tools() {
      const tools = [{ type: "function", function: { name: "weather", parameters: schema, strict: true } }];
      const first = await openai().chat.completions.stream({ ...chat("tools"), tools }).finalChatCompletion();
      const { message, finish_reason: stop } = first.choices[0];
      const [call] = message.tool_calls;
      const history = [
        ...user("tools"),
        { role: "assistant", content: message.content, tool_calls: message.tool_calls.map(({ id, type, function: { name, arguments: given } }) => ({ id, type, function: { name, arguments: given } })) },
        { role: "tool", tool_call_id: call.id, content: "rain" },
      ];
      const last = await openai().chat.completions.stream({ ...chat(""), messages: history, tools }).finalChatCompletion();
      return { name: call.function.name, input: JSON.parse(call.function.arguments), stop, text: last.choices[0].message.content };
    },
    ask: async (content, more) => rest(await openai(more).chat.completions.create({ ...chat(content), stream: true })),
    async broken() {
      return openai().chat.completions.stream(chat("broken")).finalChatCompletion();
    },
    wrong: () => openai().chat.completions.create({ ...chat("wrong"), temperature: 9, stream: true }),
  },
  responses: {
    async text() {
      const seen = {};
      const stream = await openai().responses.create({ ...responses("text"), stream: true });
      seen.text = await all(stream, (e) => {
        if (e.type === "response.completed") {
          seen.stop = e.response.status;
          seen.input = e.response.usage.input_tokens;
        }
        return e.type === "response.output_text.delta" ? e.delta : "";
      });
      return seen;
    },
    async stream() {
      const stream = openai().responses.stream(responses("stream"));
      const deltas = await all(stream, (e) => e.type === "response.output_text.delta" && e.delta);
      const whole = await stream.finalResponse();
      return { deltas, text: whole.output_text, stop: whole.status, output: whole.usage.output_tokens };
    },
    async tools() {
      const tools = [{ type: "function", name: "weather", parameters: schema, strict: true }];
      const first = await openai().responses.stream({ ...responses("tools"), tools }).finalResponse();
      const call = first.output.find((item) => item.type === "function_call");
      const { id, call_id, name, arguments: given } = call;
      const result = { type: "function_call_output", call_id, output: "rain" };
      const input = [...user("tools"), { type: "function_call", id, call_id, name, arguments: given }, result];
      const last = await openai().responses.stream({ ...responses(""), input, tools }).finalResponse();
      return { name: call.name, input: JSON.parse(given), stop: first.status, text: last.output_text };
    },
    ask: async (content, more) => rest(await openai(more).responses.create({ ...responses(content), stream: true })),
    async broken() {
      return openai().responses.stream(responses("broken")).finalResponse();
    },
    wrong: () => openai().responses.create({ ...responses("wrong"), temperature: 9, stream: true }),
  },
};

// What a call came to: its result, or the class and status of its error.
async function told(dialect, what, call) {
  const outcome = await call().then(
    (result) => ({ result }),
    (error) => ({ error: error.constructor.name, status: error.status ?? null, message: error.message, type: error.type ?? null }),
  );
  console.log(JSON.stringify({ dialect, what, ...outcome }));
}

for (const [dialect, on] of Object.entries(dialects)) {
  await told(dialect, "text", on.text);
  await told(dialect, "stream", on.stream);
  await told(dialect, "tools", on.tools);
  await told(dialect, "key", () => on.ask("key", { apiKey: "another" }));
  await told(dialect, "wrong", on.wrong);
  await told(dialect, "limited", () => on.ask("limited"));
  await told(dialect, "overloaded", () => on.ask("overloaded"));
  await told(dialect, "retried", () => on.ask("retried", { maxRetries: 1 }).then(() => "in the end"));
  await told(dialect, "broken", on.broken);
}
