import { sleep } from "@trestle/workflow";

export default async function run() {
  for (let number = 0; number < 50; number++) {
    console.log(`line ${number}`);
    await sleep(10);
  }
}
