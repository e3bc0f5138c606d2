// Consumes messages as another program would, acknowledges them, and prints one line of JSON for each.
// node consumer.js URL QUEUE COUNT

const amqp = require("amqplib");

async function main(url, queue, count) {
  const connection = await amqp.connect(url);
  const channel = await connection.createChannel();
  await channel.checkQueue(queue);
  await channel.prefetch(10);
  let received = 0;
  await new Promise((resolve, reject) => {
    channel.on("error", reject);
    const take = (message) => {
      if (message === null) {
        reject(new Error("the queue was deleted"));
        return;
      }
      const { messageId, type, contentType, headers, deliveryMode } = message.properties;
      const body = JSON.parse(message.content.toString());
      console.log(JSON.stringify({ messageId, type, contentType, headers, deliveryMode, body }));
      channel.ack(message);
      received += 1;
      if (received === count) resolve();
    };
    channel.consume(queue, take).catch(reject);
  });
  await channel.close();
  await connection.close();
}

const [url, queue, count] = process.argv.slice(2);
main(url, queue, Number(count)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
