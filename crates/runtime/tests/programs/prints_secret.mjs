import { artifacts, phase, secrets } from "@trestle/workflow";

export default async function run() {
  const got = await secrets.get("other");
  console.log(process.env.PLAIN, process.env.TOKEN, encodeURIComponent(got));
  process.stdout.write("slowly ");
  for (const character of got) {
    process.stdout.write(character);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  process.stdout.write(" done\n");
  phase(`with ${got}`);
  await artifacts.write(`${got}.txt`, "text/plain", "bytes are the author's own", { note: got });
  throw Object.assign(new Error(`it was ${got}`), { code: "MY_CODE" });
}
