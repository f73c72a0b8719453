"""Times of a profiler belong to the kernel with the longest name that fits."""

from benchmarks.kernels import kernel_name


def test_a_kernel_whose_name_begins_like_another_ones_is_told_apart():
    kernels = ["forward", "backward_queries", "backward_queries_and_line"]
    assert kernel_name("offset_backward_queries", kernels) == "backward_queries"
    assert kernel_name("offset_backward_queries_and_line", kernels) == "backward_queries_and_line"
    assert kernel_name("void cutlass::gemm", kernels) == ""
