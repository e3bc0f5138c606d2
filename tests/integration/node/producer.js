// Publishes messages as another program would: it knows the exchange, the routing key and the schema, nothing else.
// node producer.js URL EXCHANGE ROUTING_KEY COUNT

const amqp = require("amqplib");

async function main(url, exchange, routingKey, count) {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  await channel.checkExchange(exchange);
  for (let number = 1; number <= count; number += 1) {
    const body = { requestId: `req_${number}`, content: "Chào buổi sáng" };
    channel.publish(exchange, routingKey, Buffer.from(JSON.stringify(body)), {
      contentType: "application/json",
      messageId: body.requestId,
      type: "grading.request",
      persistent: true,
      headers: { "x-message-version": 1 },
    });
  }
  await channel.waitForConfirms();
  await connection.close();
}

const [url, exchange, routingKey, count] = process.argv.slice(2);
main(url, exchange, routingKey, Number(count)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
