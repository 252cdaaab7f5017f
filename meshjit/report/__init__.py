"""What a person asks of a Plan: what lives where and why, what is sent, what it holds, and what would be better.

    report = jit(f).lower(*args).report()
    print(report)                           the program by the user's lines, collectives, memory
    print(report.why("params['w1']"))       from the annotation to this placement, step by step
    print(report.why_not("x", P("data")))   the plan with that pin, beside this one
    print(report.suggest())                 annotations that would save most, each planned before it is shown

Everything is data first (`Report`, `Transfer`, `Peak`, `Answer`, `Comparison`), and prints as text for 80 columns.
"""

from meshjit.report.report import Report as Report
