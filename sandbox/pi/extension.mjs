// What Pi is given: a way to its model, the tools of the policy, and the bounds of its context.
//
//   MODEL_SOCKET=/run/model TOOL_SOCKET=/run/tools TOOL_TOKEN=... TOOLS=bash,read CONTEXT='{"max_chars": 20000, ...}'
//
// Every request of the process goes to MODEL_SOCKET, whatever its address says. Tools are run outside of this jail, by
// the server behind TOOL_SOCKET; bash and read keep the name, description and schema that Pi gives them.
// Not covered: turns and time, which are counted outside.

import * as net from "node:net";
import { createRequire } from "node:module";
import * as pi_package from "@mariozechner/pi-coding-agent";

const STOCK = { bash: pi_package.createBashToolDefinition, read: pi_package.createReadToolDefinition };
const names = process.env.TOOLS.split(",").filter(Boolean);
const bounds = JSON.parse(process.env.CONTEXT);

export default async function (pi) {
  const { Agent, setGlobalDispatcher } = createRequire(process.argv[1])("undici");
  const connect = { socketPath: process.env.MODEL_SOCKET };
  setGlobalDispatcher(new Agent({ connect, headersTimeout: 0, bodyTimeout: 0 }));

  const specs = names.length ? (await ask({ tools: true })).tools : [];
  for (const name of names) {
    const spec = specs.find((each) => each.name === name);
    const shown = STOCK[name] ? stock(name) : { label: name, name, description: spec.description, parameters: spec.parameters };
    pi.registerTool({ ...shown, execute: (_id, args, signal) => run(name, args, signal) });
  }
  pi.on("session_start", () => {
    const active = pi.getActiveTools();
    if ([...active].sort().join() !== [...names].sort().join()) {
      process.stderr.write(`the tools are ${active.join()} instead of ${names.join()}\n`);
      process.exit(1);
    }
  });
  pi.on("context", (event) => ({ messages: compact(event.messages) }));
}

function stock(name) {
  const { label, description, promptSnippet, promptGuidelines, parameters } = STOCK[name](process.cwd());
  return { name, label, description, promptSnippet, promptGuidelines, parameters };
}

async function run(name, args, signal) {
  const answer = await ask({ tool: name, arguments: args }, signal);
  const content = [{ type: "text", text: answer.text ?? `no tool can be called: ${answer.refused}` }];
  // Pi takes what is thrown for the tool's error; `refused` tells the outside that the attempt cannot go on.
  if (answer.is_error) throw new Error(answer.text);
  return { content, details: answer.refused === undefined ? {} : { refused: answer.refused } };
}

function ask(request, signal) {
  return new Promise((resolve, reject) => {
    const socket = net.createConnection(process.env.TOOL_SOCKET);
    const received = [];
    const abort = () => socket.destroy(new Error("aborted"));
    signal?.addEventListener("abort", abort, { once: true });
    socket.on("connect", () => socket.end(JSON.stringify({ token: process.env.TOOL_TOKEN, ...request }) + "\n"));
    socket.on("data", (block) => received.push(block));
    socket.on("error", (error) => (signal?.aborted ? reject(error) : resolve({ refused: error.message })));
    socket.on("close", () => {
      signal?.removeEventListener("abort", abort);
      const line = Buffer.concat(received).toString();
      resolve(line.endsWith("\n") ? JSON.parse(line) : { refused: "the attempt is over" });
    });
  });
}

// The messages as the next request shows them: each result cut, old ones cleared when all together are too long.
function compact(messages) {
  const results = messages.filter((message) => message.role === "toolResult");
  for (const result of results) cut(result);
  if (results.reduce((sum, result) => sum + text(result).length, 0) <= bounds.clear_above) return messages;
  const replies = messages.flatMap((message, place) => (message.role === "assistant" ? [place] : []));
  const boundary = replies.length > bounds.keep_turns ? replies[replies.length - bounds.keep_turns - 1] : 0;
  for (const message of messages.slice(0, boundary)) {
    if (message.role === "toolResult") message.content = [{ type: "text", text: bounds.placeholder }];
  }
  return messages;
}

function cut(result) {
  const whole = text(result);
  if (whole.length <= bounds.max_chars) return;
  const head = whole.slice(0, bounds.max_chars).replace(/[\ud800-\udbff]$/, "");
  result.content = [{ type: "text", text: `${head}\n[...truncated, ${whole.length - head.length} chars omitted]` }];
}

function text(result) {
  return result.content.map((part) => part.text ?? "").join("");
}
