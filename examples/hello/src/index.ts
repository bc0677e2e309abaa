import { phase, type Context } from "@trestle/workflow";

export interface Input {
  name?: string;
}

export interface Output {
  greeting: string;
  /** 1, and one more for each restart after a crash. */
  attempt: number;
}

/** The hour decides the greeting; the name comes from the input. */
export default async function run(input: Input | null, context: Context): Promise<Output> {
  phase("Greet");
  const name = input?.name?.trim() || "world";
  const hour = new Date(context.trigger.firedAt).getUTCHours();
  const part = hour < 12 ? "morning" : hour < 18 ? "afternoon" : "evening";
  console.log(`greeting ${name} in the ${part} (UTC)`);
  return { greeting: `Good ${part}, ${name}!`, attempt: context.attempt };
}
