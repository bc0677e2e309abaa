// Runs the vendors' own clients against the scripted model at argv[2] and checks what they make of it.
// Prints one line a check, and exits 1 at the first that fails.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const url = process.argv[2];
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "right-key", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "right-key", maxRetries: 0 });
const model = "scripted";
const user = (content) => [{ role: "user", content }];
const failed = (promise) => promise.then(() => assert.fail("no error was thrown"), (error) => error);

const parameters = { type: "object", properties: { path: { type: "string" } } };
const openaiTools = ["read", "ls"].map((name) => ({ type: "function", function: { name, description: name, parameters } }));
const anthropicTools = ["read", "ls"].map((name) => ({ name, description: name, input_schema: parameters }));

async function openaiStream(content, options = {}) {
  const stream = await openai.chat.completions.create({ model, messages: user(content), stream: true, stream_options: { include_usage: true }, ...options });
  let text = "", usage, finish;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  return { text, usage, finish };
}

const checks = {
  async "openai streams text and usage"() {
    const { text, usage, finish } = await openaiStream("say text");
    assert.equal(text, "grüße an 😀 alle");
    assert.equal(finish, "stop");
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens, usage.total_tokens, usage.prompt_tokens_details.cached_tokens], [40, 9, 49, 30]);
  },
  async "openai answers whole"() {
    const answer = await openai.chat.completions.create({ model, messages: user("say text") });
    assert.equal(answer.choices[0].message.content, "grüße an 😀 alle");
    assert.equal(answer.usage.prompt_tokens, 40);
  },
  async "openai assembles tool calls and accepts their answers"() {
    const first = await openai.chat.completions.stream({ model, messages: user("use tools"), tools: openaiTools }).finalChatCompletion();
    const { message, finish_reason } = first.choices[0];
    assert.equal(finish_reason, "tool_calls");
    assert.equal(message.content, "calling");
    assert.deepEqual(message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]), [["read", { path: "ä/b", lines: [1, 2] }], ["ls", {}]]);
    const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "ok" }));
    const second = await openai.chat.completions.create({ model, messages: [...user("use tools"), message, ...results], tools: openaiTools });
    assert.equal(second.choices[0].message.content, "both answered");
    const error = await failed(openai.chat.completions.create({ model, messages: [...user("use tools"), message, results[0]], tools: openaiTools }));
    assert.ok(error instanceof OpenAI.BadRequestError, String(error));
  },
  async "openai reads an odd wire"() {
    assert.equal((await openaiStream("odd wire")).text, "split and ended oddly");
  },
  async "openai reads five thousand deltas"() {
    assert.equal((await openaiStream("many deltas")).text, "tick ".repeat(5000));
  },
  async "openai knows the errors"() {
    const limited = await failed(openaiStream("rate limit"));
    assert.ok(limited instanceof OpenAI.RateLimitError, String(limited));
    assert.equal(limited.headers.get("retry-after"), "7");
    assert.match(limited.message, /slow down/);
    const keyless = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
    assert.ok((await failed(keyless.chat.completions.create({ model, messages: user("say text") }))) instanceof OpenAI.AuthenticationError);
    assert.ok((await failed(openaiStream("overloaded"))) instanceof OpenAI.InternalServerError);
    const midway = await failed(openaiStream("fail midway"));
    assert.ok(midway instanceof OpenAI.APIError, String(midway));
    assert.match(midway.message, /Overloaded/);
    await failed(openaiStream("cut midway"));
    assert.equal((await openaiStream("long answer")).finish, "length");
  },
  async "openai lists models"() {
    assert.deepEqual((await openai.models.list()).data.map((entry) => entry.id), [model]);
  },
  async "anthropic streams text and usage"() {
    const seen = [];
    const stream = anthropic.messages.stream({ model, max_tokens: 100, messages: user("say text") }).on("text", (piece) => seen.push(piece));
    const message = await stream.finalMessage();
    assert.equal(seen.join(""), "grüße an 😀 alle");
    assert.deepEqual(message.content.map((block) => [block.type, block.text]), [["text", "grüße an 😀 alle"]]);
    assert.equal(message.stop_reason, "end_turn");
    assert.deepEqual([message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens], [10, 30, 9]);
  },
  async "anthropic answers whole"() {
    const message = await anthropic.messages.create({ model, max_tokens: 100, messages: user("say text") });
    assert.equal(message.content[0].text, "grüße an 😀 alle");
  },
  async "anthropic tells thinking from text"() {
    const body = { model, max_tokens: 3000, thinking: { type: "enabled", budget_tokens: 2000 }, messages: user("think first") };
    const message = await anthropic.messages.stream(body).finalMessage();
    assert.deepEqual(message.content.map((block) => [block.type, block.thinking ?? block.text]), [["thinking", "let me think"], ["text", "done"]]);
  },
  async "anthropic assembles tool calls and accepts their answers"() {
    const body = { model, max_tokens: 100, tools: anthropicTools };
    const first = await anthropic.messages.stream({ ...body, messages: user("use tools") }).finalMessage();
    assert.equal(first.stop_reason, "tool_use");
    const calls = first.content.filter((block) => block.type === "tool_use");
    assert.deepEqual(calls.map((call) => [call.name, call.input]), [["read", { path: "ä/b", lines: [1, 2] }], ["ls", {}]]);
    const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: "ok" }));
    const answered = [...user("use tools"), { role: "assistant", content: first.content }, { role: "user", content: results }];
    assert.equal((await anthropic.messages.create({ ...body, messages: answered })).content[0].text, "both answered");
    answered[2] = { role: "user", content: [results[0]] };
    assert.ok((await failed(anthropic.messages.create({ ...body, messages: answered }))) instanceof Anthropic.BadRequestError);
  },
  async "anthropic reads an odd wire"() {
    const message = await anthropic.messages.stream({ model, max_tokens: 100, messages: user("odd wire") }).finalMessage();
    assert.equal(message.content[0].text, "split and ended oddly");
  },
  async "anthropic reads five thousand deltas"() {
    const message = await anthropic.messages.stream({ model, max_tokens: 100, messages: user("many deltas") }).finalMessage();
    assert.equal(message.content[0].text, "tick ".repeat(5000));
  },
  async "anthropic knows the errors"() {
    const ask = (content) => anthropic.messages.stream({ model, max_tokens: 100, messages: user(content) }).finalMessage();
    const limited = await failed(ask("rate limit"));
    assert.ok(limited instanceof Anthropic.RateLimitError, String(limited));
    assert.match(limited.message, /slow down/);
    const keyless = new Anthropic({ baseURL: url, apiKey: "wrong", maxRetries: 0 });
    assert.ok((await failed(keyless.messages.create({ model, max_tokens: 1, messages: user("say text") }))) instanceof Anthropic.AuthenticationError);
    const overloaded = await failed(ask("overloaded"));
    assert.equal(overloaded.status, 529);
    const midway = await failed(ask("fail midway"));
    assert.ok(midway instanceof Anthropic.APIError, String(midway));
    assert.match(midway.message, /Overloaded/);
    await failed(ask("cut midway"));
    assert.equal((await ask("long answer")).stop_reason, "max_tokens");
  },
};

for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`not ok ${name}\n${error.stack}`);
    process.exit(1);
  }
}
console.log(`all ${Object.keys(checks).length} checks passed`);
