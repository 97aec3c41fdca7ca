"""The process crawled JavaScript is built in: limits on processor time, memory and files, nothing else.

Started as a file, so that none of the package is loaded here. Reads one JSON object from standard input,
writes one JSON line a script: its path, and its answer or its error.
"""

import json
import resource
import sys

# Where the parent found the engine: this process looks nowhere else but in its own site-packages.
sys.path.insert(0, sys.argv[1])


def main() -> None:
    import quickjs

    task = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr
    memory, seconds = task["memory_bytes"], task["seconds"]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory + task["spare_bytes"],) * 2)
    for path in task["paths"]:
        # The engine looks at its own clock between instructions only: a native loop is ended by the kernel.
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + seconds + 2
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        context = quickjs.Context()
        context.set_memory_limit(memory)
        context.set_max_stack_size(task["stack_bytes"])
        context.set_time_limit(seconds)
        line = {"path": path}
        try:
            context.eval(task["program"])
            answer = context.eval(f"__run({json.dumps(task['files'])}, {json.dumps(path)})")
            if isinstance(answer, str) and len(answer) <= task["output_characters"]:
                line["answer"] = answer
        except quickjs.JSException as error:
            # One exception type stands for script errors, memory and time.
            line["error"] = str(error).strip()[:400] or "the script ended without a word"
        except MemoryError:
            line["error"] = "out of memory"
        out.write(json.dumps(line) + "\n")
        out.flush()


main()
