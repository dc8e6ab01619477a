// Every kernel, for compilers that make one image of one file.
#include "runtime/device/cuda/kernels/attention.cu"
#include "runtime/device/cuda/kernels/attention_tiles.cu"
#include "runtime/device/cuda/kernels/elementwise.cu"
#include "runtime/device/cuda/kernels/embedding.cu"
#include "runtime/device/cuda/kernels/loss.cu"
#include "runtime/device/cuda/kernels/norm.cu"
#include "runtime/device/cuda/kernels/optimizer.cu"
#include "runtime/device/cuda/kernels/reduce.cu"
