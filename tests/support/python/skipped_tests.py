#!/usr/bin/env python3
"""What a run of ctest skipped and why, as the end of a sentence: how many tests for each reason; nothing where none was.
Reasons are what the tests say: unittest's skips, the cases of several hosts, and programs that end with 77.

    skipped_tests.py JUNIT_FILE            of ctest --output-junit JUNIT_FILE --test-output-size-passed ALL_OF_IT"""
import ast
import collections
import re
import sys
from xml.etree import ElementTree

# Of one test in a program: unittest with -v, parallel_cases. Of the program: parallel_cases, Catch2's tests of GPUs.
OF_CASE = re.compile(r"\.\.\. skipped (['\"].*['\"])$|^ *[\d.]+ s  \S+: skipped: (.*)$", re.M)
OF_PROGRAM = re.compile(r"(?i)(?:skipped|not run): (.*)$", re.M)


def reasons_of(output, is_skipped):
    """One for each test that was skipped."""
    cases = [ast.literal_eval(quoted) if quoted else plain.strip() for quoted, plain in OF_CASE.findall(output)]
    if cases or not is_skipped:
        return cases
    said = OF_PROGRAM.findall(output) or output.strip().splitlines()[-1:] or ["it does not say why"]
    return [said[-1].strip()]


def summary(document):
    counts = collections.Counter()
    for test in document.iter("testcase"):
        counts.update(reasons_of(test.findtext("system-out") or "", test.find("skipped") is not None))
    if not counts:
        return ""
    return f"; {sum(counts.values())} skipped: " + "; ".join(f"{count} ({reason})" for reason, count in counts.most_common())


def main():
    try:
        document = ElementTree.parse(sys.argv[1])
    except FileNotFoundError:
        return  # ctest did not begin
    print(summary(document))


if __name__ == "__main__":
    main()
