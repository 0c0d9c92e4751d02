// Recurrent cells, and the layers that unroll them over a text.

import { linear } from "./linear.js";
import { add, chunk, combine, concat, multiply, rowOf, rowsOf, sigmoid, tanh, tensor, zeros } from "./tensor.js";

const HERE = "models/blocks_recurrent.py:";
const UNITS = { axes: ["tokens", "units"] };
const OUTPUT = {
  ...UNITS,
  kind: "state",
  ops: [],
  equation: "h_t, of both directions side by side if there are two",
  source: `${HERE}RecurrentLayer.forward`,
  paper: "",
};

const RNN = { ...UNITS, source: `${HERE}RNNCell.forward`, paper: "Elman 1990" };
const RNN_HIDDEN = { ...RNN, kind: "state", equation: "h_t = tanh(W x_t + U h_{t-1} + b)" };

/** Elman 1990: h_t = tanh(W x_t + U h_{t-1} + b) */
class RNNCell {
  static stateTensors = 1;

  constructor(weights) {
    this.name = weights.path;
    this.inputWeight = weights.get("input_weight"); // W
    this.stateWeight = weights.get("state_weight"); // U
    this.inputBias = weights.get("input_bias");
    this.stateBias = weights.get("state_bias");
    this.size = this.stateWeight.shape[1];
  }

  /** W x_t + b, for one step or for all at once. */
  fromInput(inputs) {
    return linear(inputs, this.inputWeight, this.inputBias);
  }

  /** U h_{t-1} + b */
  fromState(hidden) {
    return linear(hidden, this.stateWeight, this.stateBias);
  }

  /** The state before the first step: zeros. */
  start() {
    return Array.from({ length: this.constructor.stateTensors }, () => zeros(this.size));
  }

  /** The new state; `keep` records and may change each part of it. */
  step(fromInput, [hidden], keep) {
    const state = tanh(add(fromInput, this.fromState(hidden)));
    return [keep("hidden_state", state, RNN_HIDDEN, hidden)];
  }
}

const GRU = { ...UNITS, source: `${HERE}GRUCell.forward` };
const RESET = {
  ...GRU,
  kind: "gate",
  equation: "r_t = sigmoid(W_r x_t + U_r h_{t-1})",
  paper: "Cho et al. 2014, Eq. (5)",
};
const UPDATE = {
  ...GRU,
  kind: "gate",
  equation: "z_t = sigmoid(W_z x_t + U_z h_{t-1})",
  paper: "Cho et al. 2014, Eq. (6)",
};
const GRU_CANDIDATE = {
  ...GRU,
  kind: "state",
  ops: [],
  equation: "h~_t = tanh(W x_t + r_t * (U h_{t-1}))",
  paper: "Cho et al. 2014, Eq. (8)",
};
const GRU_HIDDEN = {
  ...GRU,
  kind: "state",
  equation: "h_t = z_t * h_{t-1} + (1 - z_t) * h~_t",
  paper: "Cho et al. 2014, Eq. (7)",
};

/**
 * Cho et al. 2014, Eq. (5)-(8): a reset gate r and an update gate z. The reset gate acts as in torch, after U.
 */
class GRUCell extends RNNCell {
  step(fromInput, [hidden], keep) {
    const [resetIn, updateIn, candidateIn] = chunk(fromInput, 3);
    const [resetPast, updatePast, candidatePast] = chunk(this.fromState(hidden), 3);
    const reset = keep("reset_gate", sigmoid(add(resetIn, resetPast)), RESET);
    const update = keep("update_gate", sigmoid(add(updateIn, updatePast)), UPDATE);
    const candidate = keep("candidate", tanh(add(candidateIn, multiply(reset, candidatePast))), GRU_CANDIDATE);
    const kept = multiply(update, hidden);
    const added = combine(update, candidate, (z, h) => (1 - z) * h);
    return [keep("hidden_state", add(kept, added), GRU_HIDDEN, hidden)];
  }
}

const LSTM = { ...UNITS, source: `${HERE}LSTMCell.forward`, paper: "Hochreiter & Schmidhuber 1997" };
const FORGET = {
  ...LSTM,
  kind: "gate",
  equation: "f_t = sigmoid(W_f x_t + U_f h_{t-1} + b_f)",
  paper: "Gers et al. 2000",
};
const INPUT = { ...LSTM, kind: "gate", equation: "i_t = sigmoid(W_i x_t + U_i h_{t-1} + b_i)" };
const LSTM_CANDIDATE = { ...LSTM, kind: "state", ops: [], equation: "g_t = tanh(W_g x_t + U_g h_{t-1} + b_g)" };
const SHOWN = { ...LSTM, kind: "gate", equation: "o_t = sigmoid(W_o x_t + U_o h_{t-1} + b_o)" };
const CELL_STATE = { ...LSTM, kind: "state", equation: "c_t = f_t * c_{t-1} + i_t * g_t" };
const LSTM_HIDDEN = { ...LSTM, kind: "state", equation: "h_t = o_t * tanh(c_t)" };

/** Hochreiter & Schmidhuber 1997, with the forget gate f that Gers et al. 2000 added. */
class LSTMCell extends RNNCell {
  static stateTensors = 2;

  step(fromInput, [hidden, cellState], keep) {
    const [inputIn, forgetIn, candidateIn, outputIn] = chunk(add(fromInput, this.fromState(hidden)), 4);
    const forget = keep("forget_gate", sigmoid(forgetIn), FORGET); // how much of the cell state stays
    const input = keep("input_gate", sigmoid(inputIn), INPUT); // how much of the candidate is added
    const candidate = keep("candidate", tanh(candidateIn), LSTM_CANDIDATE);
    const output = keep("output_gate", sigmoid(outputIn), SHOWN); // how much of the cell state is shown
    const newCell = add(multiply(forget, cellState), multiply(input, candidate));
    const kept = keep("cell_state", newCell, CELL_STATE, cellState);
    return [keep("hidden_state", multiply(output, tanh(kept)), LSTM_HIDDEN, hidden), kept];
  }
}

const PROJECTED = {
  ...LSTM,
  kind: "state",
  equation: "r_t = W_r (o_t * tanh(c_t))",
  source: `${HERE}ProjectedLSTMCell.forward`,
  paper: "Sak et al. 2014",
};

/** Sak et al. 2014: a large cell state c_t behind a small hidden state, r_t = W_r h_t, which the gates read. */
export class ProjectedLSTMCell extends LSTMCell {
  constructor(weights) {
    super(weights);
    this.projectionWeight = weights.get("projection_weight"); // W_r
    this.cellSize = this.projectionWeight.shape[1];
  }

  start() {
    return [zeros(this.size), zeros(this.cellSize)];
  }

  step(fromInput, [hidden, cellState], keep) {
    const keepParts = (what, ...values) => (what === "hidden_state" ? values[0] : keep(what, ...values));
    const [shown, newCell] = super.step(fromInput, [hidden, cellState], keepParts);
    return [keep("hidden_state", linear(shown, this.projectionWeight), PROJECTED, hidden), newCell];
  }
}

export const CELLS = { rnn: RNNCell, gru: GRUCell, lstm: LSTMCell };

/** Run a cell along a text, or against it; its hidden states (T, D) and its last state. */
export function unroll(cell, inputs, state, pass, isReversed = false) {
  const [length] = inputs.shape;
  const fromInput = cell.fromInput(inputs);
  const steps = pass.steps(cell.name, length, isReversed);
  const outputs = zeros(length, cell.size);
  for (let i = 0; i < length; i++) {
    const t = isReversed ? length - 1 - i : i;
    state = cell.step(rowOf(fromInput, t), state, (what, ...values) => steps.keep(what, t, ...values));
    outputs.data.set(state[0].data, t * cell.size);
  }
  return [outputs, state];
}

/** One layer, in one direction or in both; outputs and states of both are concatenated, forward first. */
export class RecurrentLayer {
  constructor(weights, cellType, { bidirectional = false, isReversed = false } = {}) {
    this.name = weights.path;
    const Cell = CELLS[cellType];
    this.cells = [new Cell(weights.at("forward_cell"))];
    if (bidirectional) this.cells.push(new Cell(weights.at("backward_cell")));
    this.directions = bidirectional ? [false, true] : [isReversed];
  }

  get size() {
    return this.cells.length * this.cells[0].size;
  }

  start() {
    return this.cells.map((cell) => cell.start());
  }

  /** Outputs (T, D) and the last state of each direction. */
  forward(inputs, pass, states = this.start()) {
    if (inputs.shape[1] === this.size && pass.isOff(this.name, "layer")) return [inputs, states];
    const results = this.cells.map((cell, i) => unroll(cell, inputs, states[i], pass, this.directions[i]));
    const outputs = concat(...results.map(([output]) => output));
    return [pass.keep(`${this.name}.output`, outputs, OUTPUT), results.map(([, state]) => state)];
  }
}

/** Several layers; each reads the outputs of the one below. */
export class RecurrentStack {
  constructor(weights, config, options) {
    const count = config.num_hidden_layers;
    this.layers = Array.from(
      { length: count },
      (_, i) => new RecurrentLayer(weights.at(`layers.${i}`), config.cell_type, options),
    );
  }

  start() {
    return this.layers.map((layer) => layer.start());
  }

  forward(inputs, pass, states = this.start()) {
    const newStates = [];
    let outputs = inputs;
    this.layers.forEach((layer, i) => {
      const [layerOutputs, state] = layer.forward(outputs, pass, states[i]);
      outputs = layerOutputs;
      newStates.push(state);
    });
    return [outputs, newStates];
  }
}

/** The first or the second half of every row, which one direction wrote. */
export function directionOf(states, number) {
  return chunk(states, 2)[number];
}

/** The last row of the forward direction beside the first of the backward one: where each ends. */
export function endsOf(outputs, bidirectional) {
  const [length, size] = outputs.shape;
  const last = rowOf(outputs, length - 1);
  if (!bidirectional) return tensor([1, size], last.data);
  const [forward] = chunk(rowsOf(outputs, length - 1, length), 2);
  const [, backward] = chunk(rowsOf(outputs, 0, 1), 2);
  return concat(forward, backward);
}
