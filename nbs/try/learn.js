// A tiny ELECTRA that learns from a text, letter by letter, in plain JavaScript. Each operation has its backward pass.
const SIZE = {width: 32, heads: 8, generator: 1, discriminator: 2, length: 32, rows: 4} // One layer, two layers
const RECIPE = {steps: 2400, rate: 4e-3, warmup: .1, masked: .15, random: .5, weight: 50}
// A matrix of n rows and m columns: its values v, and the gradient g of the loss with respect to them
const matrix = (n, m) => ({n, m, v: new Float32Array(n*m), g: new Float32Array(n*m)})
const tape = [] // Backward passes of what was computed, in its order
// From the losses back to the weights: adds to every g
const backward = () => { while (tape.length) tape.pop()() }
// A window on a matrix: element i, j of it is v[at + i*row + j*column], and g alike
const look = (o, at = 0, row = o.m, column = 1) => ({v: o.v, g: o.g, at, row, column})
const turned = o => ({...o, row: o.column, column: o.row})
const slopes = o => ({...o, v: o.g})
// The values of windows: C (n, m) += A (n, k) times B (k, m)
function addProduct(n, m, k, C, A, B) {
  const a = A.v, b = B.v, c = C.v, da = A.column, db = B.row, next = B.column, to = C.column
  for (let i = 0; i < n; i++) for (let j = 0; j < m;) {
    let at = A.at+i*A.row, bt = B.at+j*next, r = 0, s = 0, u = 0, w = 0
    const ct = C.at+i*C.row+j*to, four = j+4 <= m // Four columns at once are twice as fast
    if (four) for (let t = 0; t < k; t++, at += da, bt += db) {
      const x = a[at]
      r += x*b[bt]; s += x*b[bt+next]; u += x*b[bt+2*next]; w += x*b[bt+3*next]
    } else for (let t = 0; t < k; t++, at += da, bt += db) r += a[at]*b[bt]
    c[ct] += r
    if (four) { c[ct+to] += s; c[ct+2*to] += u; c[ct+3*to] += w }
    j += four ? 4 : 1
  }
}
// The same with its backward pass
function product(n, m, k, C, A, B) {
  addProduct(n, m, k, C, A, B)
  tape.push(() => {
    addProduct(n, k, m, slopes(A), slopes(C), turned(B))
    addProduct(k, m, n, slopes(B), turned(A), slopes(C))
  })
}
// y (n, m): the rows of table whose numbers are in ids (n)
function rowsOf(table, ids) {
  const m = table.m, y = matrix(ids.length, m)
  ids.forEach((id, i) => y.v.set(table.v.subarray(id*m, id*m+m), i*m))
  tape.push(() => ids.forEach((id, i) => { for (let j = 0; j < m; j++) table.g[id*m+j] += y.g[i*m+j] }))
  return y
}
// y (n, out) += x (n, in) times w (out, in) transposed, plus bias (1, out); y begins with zeros unless it is given
function linear(x, [w, bias], y = matrix(x.n, w.n)) {
  for (let i = 0; i < y.v.length; i++) y.v[i] += bias.v[i%w.n]
  tape.push(() => { for (let i = 0; i < y.v.length; i++) bias.g[i%w.n] += y.g[i] })
  product(x.n, w.n, x.m, look(y), look(x), turned(look(w)))
  return y
}
// y (n, m): GELU of x (n, m), by the formula with tanh
function gelu(x) {
  const y = matrix(x.n, x.m), slope = new Float32Array(x.v.length), c = Math.sqrt(2/Math.PI)
  for (let i = 0; i < slope.length; i++) {
    const o = x.v[i], tanh = Math.tanh(c*(o+.044715*o*o*o))
    y.v[i] = .5*o*(1+tanh)
    slope[i] = .5*(1+tanh) + .5*o*(1-tanh*tanh)*c*(1+.134145*o*o)
  }
  tape.push(() => { for (let i = 0; i < slope.length; i++) x.g[i] += y.g[i]*slope[i] })
  return y
}
// y (n, m): each row of x (n, m) with mean 0 and variance 1; scale and shift are left to the linear map that follows
function norm(x) {
  const m = x.m, y = matrix(x.n, m)
  for (let at = 0; at < x.v.length; at += m) {
    let mean = 0, variance = 0
    for (let j = at; j < at+m; j++) mean += x.v[j]/m
    for (let j = at; j < at+m; j++) variance += (x.v[j]-mean)**2/m
    const by = 1/Math.sqrt(variance+1e-6)
    for (let j = at; j < at+m; j++) y.v[j] = (x.v[j]-mean)*by
    tape.push(() => {
      let mean = 0, along = 0
      for (let j = at; j < at+m; j++) { mean += y.g[j]/m; along += y.g[j]*y.v[j]/m }
      for (let j = at; j < at+m; j++) x.g[j] += by*(y.g[j]-mean-y.v[j]*along)
    })
  }
  return y
}
// Softmax of `size` values of v from the place `at` on, in place
function softmax(v, at, size) {
  let most = v[at], sum = 0
  for (let j = at; j < at+size; j++) most = Math.max(most, v[j])
  for (let j = at; j < at+size; j++) sum += v[j] = Math.exp(v[j]-most)
  for (let j = at; j < at+size; j++) v[j] /= sum
}
// y (n, d): attention within each row; x (n, 3d): queries, keys, values; near (heads, 2*length-1): scores by distance
function attention(x, near) {
  const l = SIZE.length, d = x.m/3, h = d/near.n, by = Math.sqrt(h), y = matrix(x.n, d), p = matrix(x.n*near.n, l)
  for (let r = 0; r < x.n; r += l) for (let head = 0; head < near.n; head++) {
    const [query, key, value] = [0, d, 2*d].map(o => look(x, r*x.m+o+head*h)), begin = (r*near.n+head*l)*l
    product(l, l, h, look(p, begin), query, turned(key))
    for (let i = 0; i < l; i++) { // The scores of a letter become probabilities, in place
      const at = begin+i*l, zero = head*near.m+l-1-i
      for (let j = 0; j < l; j++) p.v[at+j] = p.v[at+j]/by + near.v[zero+j]
      softmax(p.v, at, l)
      tape.push(() => {
        let mean = 0
        for (let j = at; j < at+l; j++) mean += p.v[j]*p.g[j]
        for (let j = 0; j < l; j++) {
          const g = p.v[at+j]*(p.g[at+j]-mean)
          near.g[zero+j] += g
          p.g[at+j] = g/by
        }
      })
    }
    product(l, h, l, look(y, r*d+head*h), look(p, begin), value)
  }
  return y
}
// Weights of both networks, which share nothing but the embeddings (vocabulary, width), and a list of them
function networks(vocabulary, random) {
  const d = SIZE.width, all = []
  const weights = (n, m, size) => {
    all.push({...matrix(n, m), mean: new Float32Array(n*m), square: new Float32Array(n*m)})
    all.at(-1).v.forEach((_, i, v) => { v[i] = size*(random()-.5) })
    return all.at(-1)
  }
  const dense = (from, to) => [weights(to, from, .4), weights(1, to, 0)]
  const layers = count => Array.from({length: count}, () => ({
    qkv: dense(d, 3*d), near: weights(SIZE.heads, 2*SIZE.length-1, 4), out: dense(d, d),
    up: dense(d, 4*d), down: dense(4*d, d)
  }))
  return {all, letters: dense(d, vocabulary), answer: dense(d, 1),
          generator: layers(SIZE.generator), discriminator: layers(SIZE.discriminator)}
}
// States (n, width) of ids (n), which are rows of SIZE.length letters
function statesOf(net, layers, ids) {
  const x = rowsOf(net.letters[0], ids)
  for (const o of layers) {
    linear(attention(linear(norm(x), o.qkv), o.near), o.out, x)
    linear(gelu(linear(norm(x), o.up)), o.down, x)
  }
  return norm(x)
}
// The generator's loss in nats at the `places` of ids (n), where it reads the mask, 0; and p (places, vocabulary)
function generate(net, {ids, places}) {
  const masked = ids.map((o, i) => places.includes(i) ? 0 : o), states = statesOf(net, net.generator, masked)
  const logits = linear(rowsOf(states, places), net.letters), p = logits.v, {n, m} = logits
  for (let i = 0; i < n; i++) softmax(p, i*m, m)
  tape.push(() => p.forEach((o, i) => { logits.g[i] += (o - (ids[places[i/m|0]] == i%m))/n }))
  return {p, masked, loss: places.reduce((sum, place, i) => sum - Math.log(p[i*m+ids[place]])/n, 0)}
}
// The discriminator's loss on all letters of `read` (n), some of which are not those of ids (n), and p (n), P(replaced)
function discriminate(net, read, ids) {
  const logits = linear(statesOf(net, net.discriminator, read), net.answer), n = ids.length
  const labels = read.map((o, i) => +(o != ids[i])), p = logits.v.map(o => 1/(1+Math.exp(-o)))
  tape.push(() => p.forEach((o, i) => { logits.g[i] += RECIPE.weight*(o-labels[i])/n }))
  return {p, labels, loss: labels.reduce((sum, o, i) => sum - Math.log(o ? p[i] : 1-p[i])/n, 0)}
}
// Adam without bias correction: weights move against their gradients g, which begin anew
function update(weights, rate) {
  for (const {v, g, mean, square} of weights) for (let i = 0; i < v.length; i++) {
    mean[i] += .1*(g[i]-mean[i])
    square[i] += .001*(g[i]**2-square[i])
    v[i] -= rate*mean[i]/(Math.sqrt(square[i])+1e-6)
    g[i] = 0
  }
}
// A training on a text: its letters as ids, the last tenth of which is held out, and both networks
function training(text, seed = 1) {
  const letters = [...text.toLowerCase().replace(/\s+/g, ' ').trim()], vocabulary = ['_', ...new Set(letters)]
  const number = new Map(vocabulary.map((o, i) => [o, i])), ids = Int32Array.from(letters, o => number.get(o))
  const random = () => (seed = (1664525*seed+1013904223) % 2**32)/2**32, cut = .9*ids.length | 0
  const o = {vocabulary, random, done: 0, ids: ids.subarray(0, cut), net: networks(vocabulary.length, random)}
  o.held = masking(o, ids.slice(cut, cut + Math.min(64, (ids.length-cut)/SIZE.length | 0)*SIZE.length))
  return {...o, noisy: replaced(o, o.held, 1)}
}
// Some rows of letters, ids (n), and the places that are masked in them
const masking = (o, ids) => ({ids, places: [...ids.keys()].filter(() => o.random() < RECIPE.masked)})
// ids (n), where each masked letter is any of the text's, with probability `any`, or drawn from p (places, vocabulary)
function replaced(o, {ids, places}, any, p) {
  const read = ids.slice(), size = o.vocabulary.length
  places.forEach((place, i) => {
    let left = o.random(), id = 0
    if (o.random() < any) id = o.ids[o.random()*o.ids.length | 0]
    else while (id < size-1 && (left -= p[i*size+id]) > 0) id++
    read[place] = id
  })
  return read
}
// One step: losses of both networks on some rows, one backward pass, one update; the losses, the share of replacements
function step(o) {
  const starts = Array.from({length: SIZE.rows}, () => o.random()*(o.ids.length-SIZE.length) | 0)
  const batch = masking(o, Int32Array.from(starts.flatMap(i => [...o.ids.subarray(i, i+SIZE.length)])))
  const g = generate(o.net, batch), d = discriminate(o.net, replaced(o, batch, RECIPE.random, g.p), batch.ids)
  backward()
  update(o.net.all, RECIPE.rate*Math.min(++o.done/RECIPE.warmup/RECIPE.steps, 1)*(1-o.done/RECIPE.steps))
  return [g.loss, d.loss, d.labels.reduce((a, b) => a+b)/d.labels.length]
}
// AUC on held-out text where any letters replace some: how often one of these has a higher P(replaced) than an original
function auc(o) {
  const {p, labels} = discriminate(o.net, o.noisy, o.held.ids)
  const [originals, replaced] = [0, 1].map(label => p.filter((_, i) => labels[i] == label))
  tape.length = 0
  return replaced.reduce((sum, a) => sum + originals.filter(b => b < a).length, 0)/originals.length/replaced.length
}
// The page: what it shows, from step to step
if (typeof document == 'object') {
  const element = id => document.getElementById(`learn-${id}`), every = 30
  const entropy = p => p.reduce((sum, o) => sum - (o && o*Math.log(o)), 0)
  let o, unigram, seconds, running, sums, curves
  const letters = (id, ids, marked, p) => element(id).replaceChildren(...Array.from(ids, (letter, i) => {
    const span = document.createElement('span')
    Object.assign(span, {textContent: o.vocabulary[letter], className: marked.includes(i) ? 'learn-marked' : ''})
    if (p) span.style.background = `rgba(213, 94, 0, ${p[i]})`
    return span
  }))
  const curve = (id, values, known, low = .6, high = 1.15) => { // The lowest and the highest in shares of `known`
    const y = value => 60*(high-Math.max(low, Math.min(high, value/known)))/(high-low)
    element(`${id}-curve`).setAttribute('points', values.map((o, i) => [200*(i+1)*every/RECIPE.steps, y(o)]).join(' '))
    element(`${id}-known`).setAttribute('d', `M0 ${y(known)}H200`)
    element(id).textContent = `${values.at(-1)?.toFixed(2) ?? '–'} (${known.toFixed(2)})`
  }
  const show = share => {
    const ids = o.held.ids.slice(0, 3*SIZE.length), places = o.held.places.filter(i => i < ids.length)
    const {p, masked} = generate(o.net, {ids, places}), noisy = o.noisy.slice(0, ids.length)
    letters('reads', masked, places)
    letters('guesses', replaced(o, {ids, places}, 0, p), places)
    letters('doubts', noisy, places.filter(i => noisy[i] != ids[i]), discriminate(o.net, noisy, ids).p)
    tape.length = 0
    curve('generator', curves[0], unigram)
    curve('discriminator', curves[1], entropy([share, 1-share]))
    curve('auc', curves[2], .5, .8, 2)
  }
  const slice = () => { // The page answers between two slices
    const begin = performance.now()
    while (running && performance.now()-begin < 50) {
      step(o).forEach((value, i) => { sums[i] += value/every })
      running = o.done < RECIPE.steps
      if (o.done%every) continue
      curves.forEach((values, i) => values.push(i < 2 ? sums[i] : auc(o)))
      show(sums[2])
      sums.fill(0)
    }
    seconds += (performance.now()-begin)/1000
    requestAnimationFrame(slice)
    element('start').textContent = running ? 'Pause' : 'Start'
    element('said').textContent = `Step ${o.done} of ${RECIPE.steps}, ${Math.round(seconds)} seconds`
  }
  const reset = () => {
    [o, running, seconds, sums, curves] = [training(element('text').value), false, 0, [0, 0, 0], [[], [], []]]
    unigram = entropy(o.vocabulary.map((_, id) => o.ids.filter(other => other == id).length/o.ids.length))
    if (!(element('start').disabled = o.ids.length < 900)) show(RECIPE.masked)
  }
  element('start').onclick = () => {
    if (o.done == RECIPE.steps) reset()
    running = !running
  }
  element('reset').onclick = element('text').oninput = reset
  fetch('try/learn.txt').then(o => o.text()).then(o => { element('text').value = o }).then(reset).then(slice)
}
