/** What a server counts, for Prometheus; names as vLLM has them, with our prefix. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { ServedModel } from './served-model.ts';

export class ServingMetrics {
  readonly registry = new Registry();
  readonly #requests: Counter<'endpoint' | 'status'>;
  readonly #prompt: Counter;
  readonly #cached: Counter;
  readonly #generated: Counter;
  readonly #seconds: Histogram<'endpoint'>;

  constructor(model: ServedModel) {
    const registers = [this.registry];
    this.#requests = new Counter({
      name: 'sinkflex_requests_total',
      help: 'Requests answered.',
      labelNames: ['endpoint', 'status'],
      registers,
    });
    this.#prompt = new Counter({ name: 'sinkflex_prompt_tokens_total', help: 'Tokens of prompts.', registers });
    this.#cached = new Counter({ name: 'sinkflex_cached_tokens_total', help: 'Tokens of prompts that had been read already.', registers });
    this.#generated = new Counter({ name: 'sinkflex_generation_tokens_total', help: 'Tokens drawn.', registers });
    this.#seconds = new Histogram({
      name: 'sinkflex_request_seconds',
      help: 'Time from a request to the end of its answer.',
      labelNames: ['endpoint'],
      buckets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300],
      registers,
    });
    new Gauge({
      name: 'sinkflex_requests_running',
      help: 'Sequences that generate.',
      registers,
      collect() {
        this.set(model.sequences.running);
      },
    });
    new Gauge({
      name: 'sinkflex_requests_waiting',
      help: 'Requests that wait for a sequence.',
      registers,
      collect() {
        this.set(model.engine.stats().waitingSequences);
      },
    });
  }

  answered(endpoint: string, status: number, seconds: number): void {
    this.#requests.inc({ endpoint, status: String(status) });
    this.#seconds.observe({ endpoint }, seconds);
  }

  tokens(usage: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details: { cached_tokens: number } }): void {
    this.#prompt.inc(usage.prompt_tokens);
    this.#generated.inc(usage.completion_tokens);
    this.#cached.inc(usage.prompt_tokens_details.cached_tokens);
  }
}
