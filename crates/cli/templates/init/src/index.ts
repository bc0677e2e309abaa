import { phase, type Context } from "@trestle/workflow";

export interface Input {
  name?: string;
}

export interface Output {
  greeting: string;
}

/** Called once for each run. What it returns is the run's output. */
export default async function run(input: Input | null, context: Context): Promise<Output> {
  phase("Greet");
  const name = input?.name ?? "world";
  console.log(`run ${context.runId}, attempt ${context.attempt}`);

  // An agent works in the run's workspace and answers with text, or with a value of a JSON Schema:
  //   import { agent } from "@trestle/workflow";
  //   const poem = await agent(`Write two lines for ${name}.`);

  return { greeting: `Hello, ${name}!` };
}
