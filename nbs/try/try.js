// Score sentences in the browser: ONNX files of `electra_convert --onnx --int8`, run by onnxruntime-web.
import * as ort from 'onnxruntime-web'
import { Tokenizer } from '@huggingface/tokenizers'

const element = id => document.getElementById(id)
const file = name => new URL(`models/${name}`, import.meta.url).href
const percent = p => p < .01 ? '<1 %' : `${Math.round(100*p)} %`
const sigmoid = x => 1/(1+Math.exp(-x))

ort.env.wasm.numThreads = 1 // several need headers that static sites cannot set

async function fetched(name) {
  const answer = await fetch(file(name))
  if (!answer.ok) throw new Error(`${name} cannot be loaded (${answer.status})`)
  return answer.json()
}

// A model: its tokenizer, what onnx.json says of it, and its networks, each loaded when it is first used
async function open(folder) {
  const [tokenizer, config, facts] = await Promise.all(
    ['tokenizer.json', 'tokenizer_config.json', 'onnx.json'].map(o => fetched(`${folder}/${o}`)))
  const tok = new Tokenizer(tokenizer, config), sessions = {}
  const id = name => tok.token_to_id(name)
  async function run(network, ids) {
    sessions[network] ??= ort.InferenceSession.create(file(`${folder}/${network}.onnx`))
    const tensor = values => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length])
    const inputs = {input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1))}
    return (await (await sessions[network]).run(inputs)).logits
  }
  return {tok, facts, run, cls: id('[CLS]'), sep: id('[SEP]'), mask: id('[MASK]'), unk: id('[UNK]')}
}

const opened = {}
const model = folder => opened[folder] ??= open(folder)

// Words and punctuation marks of a text, each with its place and the ids of its pieces
function wordsOf(m, text) {
  const words = []
  for (const found of text.matchAll(/[\p{P}\p{S}]|[^\s\p{P}\p{S}]+/gu)) {
    const ids = m.tok.encode(found[0], {add_special_tokens: false}).ids
    if (ids.length) words.push({text: found[0], start: found.index, ids})
  }
  const n = words.reduce((sum, o) => sum+o.ids.length, 0)
  if (!n) throw new Error('There is no word to score.')
  const most = m.facts.max_length-2
  if (n > most) throw new Error(`The text has ${n} pieces of words; at most ${most} can be scored.`)
  return words
}

const sequence = (m, words) => [m.cls, ...words.flatMap(o => o.ids), m.sep]

// P(wrong) of every word: the probability that any of its pieces is, as in `electra_check`; 0 where it is not known
export async function scored(text) {
  const m = await model('check'), words = wordsOf(m, text)
  const logits = (await m.run('discriminator', sequence(m, words))).data
  const step = Math.log(.15/.85) - Math.log(m.facts.mask_prob/(1-m.facts.mask_prob))
  let at = 1
  for (const word of words) {
    const right = word.ids.reduce((p, _, i) => p*(1-sigmoid(logits[at+i]+step)), 1)
    word.probability = word.ids.includes(m.unk) ? 0 : 1-right
    at += word.ids.length
  }
  return words
}

// What a generator would write instead of a word
export async function alternatives(text, index, n = 3) {
  const m = await model('electra'), words = wordsOf(m, text), before = words.slice(0, index), after = words.slice(index+1)
  const ids = [...sequence(m, before).slice(0, -1), m.mask, ...sequence(m, after).slice(1)]
  const place = sequence(m, before).length-1, logits = await m.run('generator', ids), size = logits.dims[2]
  const row = Array.from(logits.data.slice(place*size, (place+1)*size)), most = Math.max(...row)
  const weights = row.map(o => Math.exp(o-most)), total = weights.reduce((a, b) => a+b)
  const own = words[index].ids.length == 1 ? words[index].ids[0] : -1
  return weights.map((w, id) => ({id, word: m.tok.id_to_token(id), probability: w/total}))
    .filter(o => o.id != own && !/^(##|\[)/.test(o.word))
    .sort((a, b) => b.probability-a.probability).slice(0, n)
}

// Log-probability of a text by the energies of its tokens, nats
export async function likelihood(text) {
  const m = await model('electric'), words = wordsOf(m, text), ids = sequence(m, words)
  return -Array.from((await m.run('electric', ids)).data).slice(1, -1).reduce((a, b) => a+b)
}

// The page

function colour(p) { // as `shade` of notebook 42
  return `rgb(${[238, 238, 238].map((a, i) => Math.round(a+([222, 70, 55][i]-a)*p)).join()})`
}

function coloured(words, text) {
  const parts = []
  let end = 0
  for (const word of words) {
    const span = document.createElement('span')
    span.textContent = word.text
    span.title = percent(word.probability)
    span.style.background = colour(word.probability)
    span.className = 'try-word'
    parts.push(text.slice(end, word.start), span)
    end = word.start+word.text.length
  }
  return [...parts, text.slice(end)]
}

async function showScores() {
  const text = element('try-text').value, words = await scored(text)
  const suspicious = words.map((_, i) => i).filter(i => words[i].probability >= .5)
  const highest = words.reduce((best, o, i) => o.probability > words[best].probability ? i : best, 0)
  const notes = []
  for (const i of suspicious.length ? suspicious : [highest]) {
    const others = (await alternatives(text, i)).map(o => `${o.word} ${percent(o.probability)}`).join(' · ')
    const low = suspicious.length ? '' : ', and no word has more'
    const note = document.createElement('div')
    note.textContent = `${words[i].text} ${percent(words[i].probability)}${low}; a generator would write ${others}`
    notes.push(note)
  }
  element('try-scored').replaceChildren(...coloured(words, text), ...notes)
}

async function showLikelier() {
  const texts = ['try-first', 'try-second'].map(o => element(o).value)
  const [a, b] = [await likelihood(texts[0]), await likelihood(texts[1])]
  const verdict = a == b ? 'Both are equally likely' : `The ${a > b ? 'first' : 'second'} is likelier`
  element('try-likelier').textContent = `${verdict}: ${a.toFixed(1)} and ${b.toFixed(1)} nats.`
}

// Run what a form asks for; say what went wrong in words
function answers(form, output, show) {
  element(form).addEventListener('submit', async event => {
    event.preventDefault()
    element(output).textContent = 'Loading …'
    try {
      if (typeof WebAssembly !== 'object') throw new Error('This page needs WebAssembly, which is off in this browser.')
      await show()
    } catch (error) { element(output).textContent = `This did not work: ${error.message}` }
    element(output).dataset.done = 'yes'
  })
}

answers('try-one', 'try-scored', showScores)
answers('try-two', 'try-likelier', showLikelier)
