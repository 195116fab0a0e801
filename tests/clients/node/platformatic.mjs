// What a user of @platformatic/kafka does first; one line for each answer. Arguments: bootstrap, topic, group.
import {
  Admin, ConfigResourceTypes, Consumer, IncrementalAlterConfigOperationTypes, MessagesStreamModes, Producer,
  stringDeserializers, stringSerializers,
} from '@platformatic/kafka'

const [bootstrap, topic, group] = process.argv.slice(2)
const RECORDS = 30
const common = { clientId: 'first-steps', bootstrapBrokers: bootstrap.split(','), retries: 5 }
const admin = new Admin(common)

const say = (...words) => console.log(words.join(' '))
// Errors come in groups, and groups of groups.
const codeOf = (error) => error.apiCode ?? error.errors?.map(codeOf).find(Boolean)
const refusal = (promise) => promise.then(() => 'no', (error) => codeOf(error) ?? error)

async function readAll() {
  const consumer = new Consumer({ ...common, groupId: group, deserializers: stringDeserializers })
  const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest', autocommit: false })
  const values = new Set()
  for await (const message of stream) {
    values.add(message.value)
    await message.commit()
    if (values.size === RECORDS) break
  }
  await consumer.close(true)
  return values.size
}

async function committed() {
  const [{ topics }] = await admin.listConsumerGroupOffsets({ groups: [group] })
  return `[${topics[0].partitions.map(({ committedOffset }) => committedOffset).join(' ')}]`
}

const retention = (value) => ({
  resources: [{
    resourceType: ConfigResourceTypes.TOPIC,
    resourceName: topic,
    configs: [{ name: 'retention.ms', configOperation: IncrementalAlterConfigOperationTypes.SET, value }],
  }],
})

say('brokers', (await admin.metadata({ topics: [] })).brokers.size)
const wanted = { topics: [topic], partitions: 3, replicas: 1 }
say('created', (await admin.createTopics(wanted))[0].partitions)
say('created again', await refusal(admin.createTopics(wanted)))

const producer = new Producer({ ...common, serializers: stringSerializers })
const messages = Array.from({ length: RECORDS }, (_, number) => ({ topic, value: `${number}`, partition: number % 3 }))
await producer.send({ messages })
await producer.close()
const latest = [0, 1, 2].map((partitionIndex) => ({ partitionIndex, timestamp: -1n }))
const [ends] = await admin.listOffsets({ topics: [{ name: topic, partitions: latest }] })
say('produced', ends.partitions.reduce((sum, { offset }) => sum + Number(offset), 0))

say('read', await readAll())
say('listed', (await admin.listGroups()).has(group))
say('described', (await admin.describeGroups({ groups: [group] })).get(group).state)
say('committed', await committed())
const beginning = [0, 1, 2].map((partition) => ({ partition, offset: 0n }))
await admin.alterConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionOffsets: beginning }] })
say('reset', await committed())
say('read again', await readAll())

await admin.incrementalAlterConfigs(retention('3600000'))
const asked = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: ['retention.ms'] }
say('altered', (await admin.describeConfigs({ resources: [asked] }))[0].configs[0].value)
say('refused', await refusal(admin.incrementalAlterConfigs(retention('soon'))))

await admin.deleteGroups({ groups: [group] })
await admin.deleteTopics({ topics: [topic] })
say('deleted', !(await admin.listTopics()).includes(topic))
await admin.close()
