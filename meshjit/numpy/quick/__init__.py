"""Functions of concrete Arrays, outside of any trace, by C++. What is called again and again runs as one program there; whatever
C++ cannot do, and every error, is left to the usual way, op by op.

    numbers     Python numbers as Arrays that are kept
    programs    how C++ makes what the usual way gives, or that it cannot
    calls       `quickened`: a function whose calls go to C++
    operators   `quick`: the same for operators, of two operands
    indexing    x[index] and x.at[index] at known places
    names       which functions of meshjit.numpy, lax and nn are quickened
"""
