// What a user of kafkajs does first; one line for each answer. Arguments: bootstrap, topic, group.
import kafkajs from 'kafkajs'

const { ConfigResourceTypes, Kafka, logLevel } = kafkajs
const [bootstrap, topic, group] = process.argv.slice(2)
const RECORDS = 30
const kafka = new Kafka({ brokers: bootstrap.split(','), clientId: 'first-steps', logLevel: logLevel.NOTHING })
const admin = kafka.admin()

const say = (...words) => console.log(words.join(' '))
const codeOf = (error) => (error.errors?.[0] ?? error).code
const refusal = (promise) => promise.then(() => 'no', codeOf)

async function readAll() {
  const consumer = kafka.consumer({ groupId: group })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const values = new Set()
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    const eachMessage = async ({ message }) => {
      values.add(message.value.toString())
      if (values.size === RECORDS) resolve()
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.disconnect() // Commits what was handled.
  return values.size
}

async function committed() {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  return `[${partitions.map(({ offset }) => offset).join(' ')}]`
}

const retention = (value) => ({
  validateOnly: false,
  resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: 'retention.ms', value }] }],
})

await admin.connect()
say('brokers', (await admin.describeCluster()).brokers.length)
const wanted = { topics: [{ topic, numPartitions: 3 }] }
await admin.createTopics(wanted)
say('created', (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length)
// The client takes "it exists" for an answer, not for an error.
say('created again', await admin.createTopics(wanted))

const producer = kafka.producer()
await producer.connect()
const messages = Array.from({ length: RECORDS }, (_, number) => ({ value: `${number}`, partition: number % 3 }))
await producer.send({ topic, messages })
await producer.disconnect()
const ends = await admin.fetchTopicOffsets(topic)
say('produced', ends.reduce((sum, { high }) => sum + Number(high), 0))

say('read', await readAll())
say('listed', (await admin.listGroups()).groups.some(({ groupId }) => groupId === group))
say('described', (await admin.describeGroups([group])).groups[0].state)
say('committed', await committed())
await admin.resetOffsets({ groupId: group, topic, earliest: true })
say('reset', await committed())
say('read again', await readAll())

await admin.alterConfigs(retention('3600000'))
const asked = { type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['retention.ms'] }
const { resources } = await admin.describeConfigs({ resources: [asked] })
say('altered', resources[0].configEntries[0].configValue)
say('refused', await refusal(admin.alterConfigs(retention('soon'))))

await admin.deleteGroups([group])
await admin.deleteTopics({ topics: [topic] })
say('deleted', !(await admin.listTopics()).includes(topic))
await admin.disconnect()
