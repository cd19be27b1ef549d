"""Times llama.cpp on one GGUF file and prints one JSON line, with the rates that `pomar bench model --json` measures.

Run by `compare` with the interpreter of bench/.venv. It calls llama.cpp's C functions through the bindings'
lowest layer, so what is timed is llama_decode and the C sampler, not Python.

llama.cpp has two forms of attention on processors, and which is faster depends on the phase and the context. Both
are timed, and each figure is that of the faster one.
"""

import argparse
import ctypes
import json
import sys
import time

import llama_cpp as llama

# Values of llama_flash_attn_type: off, and llama.cpp's own choice.
FLASH_ATTENTION = (0, -1)


def main() -> None:
    arguments = parse_arguments()
    # llama.cpp reports its loading on standard error; only its errors are of interest here.
    quiet = llama.llama_log_callback(lambda level, text, _: print_error(level, text))
    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    llama.llama_backend_init()
    model = load_model(arguments.model)
    prompt = prompt_tokens(model, arguments.prompt)
    timings = [timed_run(model, arguments, prompt, attention) for attention in FLASH_ATTENTION]
    prefill_s, decode_s = (min(seconds) for seconds in zip(*timings))

    print(json.dumps({
        "engine": "llama.cpp",
        "version": llama.__version__,
        "system": llama.llama_print_system_info().decode(),
        "model": arguments.model,
        "threads": arguments.threads,
        "prefill_tokens": arguments.prompt,
        "prefill_tok_s": arguments.prompt / prefill_s,
        "decode_tokens": arguments.generate,
        "decode_tok_s": arguments.generate / decode_s,
    }))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prompt", type=int, required=True)
    parser.add_argument("--generate", type=int, required=True)
    return parser.parse_args()


def print_error(level: int, text: bytes) -> None:
    error_level = 4  # GGML_LOG_LEVEL_ERROR
    if level == error_level:
        sys.stderr.write(text.decode(errors="replace"))


def load_model(path: str):
    params = llama.llama_model_default_params()
    params.n_gpu_layers = 0  # processor against processor, on Macs too
    model = llama.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit(f"llama.cpp could not load {path}")
    return model


def timed_run(model, arguments: argparse.Namespace, prompt, attention: int) -> tuple[float, float]:
    """Seconds for the prompt and for the tokens after it, with one form of attention."""
    context = make_context(model, arguments, attention)
    # Warm-up: the pages of the file, the buffers and the thread pool are all touched once.
    run(context, prompt, min(arguments.generate, 8))
    seconds = run(context, prompt, arguments.generate)
    llama.llama_free(context)
    return seconds


def make_context(model, arguments: argparse.Namespace, attention: int):
    """A context with llama.cpp's defaults, save for its sizes: the whole prompt is one batch."""
    params = llama.llama_context_default_params()
    params.n_ctx = arguments.prompt + arguments.generate
    params.n_batch = arguments.prompt
    params.n_ubatch = arguments.prompt
    params.n_threads = arguments.threads
    params.n_threads_batch = arguments.threads
    params.flash_attn_type = attention
    params.offload_kqv = False
    params.op_offload = False
    context = llama.llama_init_from_model(model, params)
    if not context:
        sys.exit("llama.cpp could not make a context")
    return context


def prompt_tokens(model, count: int):
    """`count` ids spread over the vocabulary; which ones they are does not change the work."""
    size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    return (llama.llama_token * count)(*(i * 7919 % size for i in range(count)))


def run(context, prompt, generate: int) -> tuple[float, float]:
    """Seconds for the prompt in one batch, and for `generate` greedy tokens after it, one at a time."""
    llama.llama_memory_clear(llama.llama_get_memory(context), True)
    greedy = llama.llama_sampler_init_greedy()

    started = time.perf_counter()
    decode(context, prompt, len(prompt))
    prefilled = time.perf_counter()
    token = (llama.llama_token * 1)()
    for _ in range(generate):
        token[0] = llama.llama_sampler_sample(greedy, context, -1)
        decode(context, token, 1)
    finished = time.perf_counter()

    llama.llama_sampler_free(greedy)
    return prefilled - started, finished - prefilled


def decode(context, tokens, count: int) -> None:
    status = llama.llama_decode(context, llama.llama_batch_get_one(tokens, count))
    if status != 0:
        sys.exit(f"llama_decode failed with status {status}")
    llama.llama_synchronize(context)


if __name__ == "__main__":
    main()
