// Enqueues calls as a program in any language would: it knows Redis and the names of functions, nothing else.
// node enqueue.js URL QUEUE COUNT

const Redis = require("ioredis");

async function main(url, queue, count) {
  const redis = new Redis(url);
  for (let number = 0; number < count; number += 1) {
    const id = `${queue}-node-${number}`;
    const now = Date.now();
    const call = { t: null, f: "grade", a: [`node-${number}: khá`], k: {}, et: now };
    await redis
      .multi()
      .psetex(`arq:job:${id}`, 86400000, JSON.stringify(call))
      .zadd(queue, now, id)
      .exec();
  }
  await redis.quit();
}

const [url, queue, count] = process.argv.slice(2);
main(url, queue, Number(count)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
