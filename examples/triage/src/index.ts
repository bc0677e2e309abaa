import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import { agent, artifacts, phase, secrets, type Context, type ToolDef } from "@trestle/workflow";

export interface Ticket {
  id: string;
  customer: string;
  subject: string;
  body: string;
}

export interface Decision {
  priority: "low" | "normal" | "high" | "urgent";
  team: "billing" | "product" | "platform";
  reason: string;
}

export interface Output extends Decision {
  ticket: string;
  /** HMAC-SHA256 of the artifact, in hex. */
  signature: string;
  artifact: { id: string; name: string };
}

interface Customer {
  id: string;
  name: string;
  plan: string;
  seats: number;
  openTickets: number;
}

const DECISION = {
  type: "object",
  properties: {
    priority: { enum: ["low", "normal", "high", "urgent"] },
    team: { enum: ["billing", "product", "platform"] },
    reason: { type: "string" },
  },
  required: ["priority", "team", "reason"],
  additionalProperties: false,
};

const SAMPLE: Ticket = {
  id: "T-1042",
  customer: "c-207",
  subject: "Nobody can sign in",
  body: "Since 9:10 all our wards get an error after the password. Patients are waiting.",
};

/** A tool runs here, in the program: the model only sees what it returns. */
function customerTool(customers: Customer[]): ToolDef<{ id: string }> {
  return {
    name: "lookup_customer",
    description: "Finds a customer by id: name, plan, seats and open tickets.",
    inputSchema: {
      type: "object",
      properties: { id: { type: "string", description: "for example c-100" } },
      required: ["id"],
      additionalProperties: false,
    },
    execute: ({ id }) => {
      const customer = customers.find((one) => one.id === id);
      if (customer === undefined) throw new Error(`there is no customer ${id}`);
      return customer;
    },
    timeoutMs: 10_000,
  };
}

function prompt({ id, customer, subject, body }: Ticket): string {
  return [
    "Decide who works on this support ticket, and how soon. Look the customer up first.",
    `<ticket id="${id}" customer="${customer}">`,
    `Subject: ${subject}`,
    "",
    body,
    "</ticket>",
  ].join("\n");
}

export default async function run(input: Ticket | null, context: Context): Promise<Output> {
  const ticket = input ?? SAMPLE;
  const customers: Customer[] = JSON.parse(await readFile(new URL("./customers.json", import.meta.url), "utf8"));

  phase("Decide");
  const decision = await agent<Decision>(prompt(ticket), {
    name: "dispatcher",
    builtins: "none",
    tools: [customerTool(customers)],
    schema: DECISION,
  });
  console.log(`${ticket.id}: ${decision.priority}, ${decision.team}`);

  phase("Hand over");
  const document = JSON.stringify({ ticket: ticket.id, ...decision, decidedBy: context.runId }, null, 2);
  const signature = createHmac("sha256", await secrets.get("TRIAGE_KEY")).update(document).digest("hex");
  const { id, name } = await artifacts.write(`triage-${ticket.id}.json`, "application/json", document, { signature });
  return { ticket: ticket.id, ...decision, signature, artifact: { id, name } };
}
