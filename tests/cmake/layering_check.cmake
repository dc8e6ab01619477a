# Tests cmake/layering.cmake on small trees written below SCRATCH.
#
# Run: cmake -DSCRATCH=<folder> -P tests/cmake/layering_check.cmake
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/layering.cmake)

# expect_faults(<file> <content> <regex>...): the faults of a tree with this one file are exactly as
# many as the regexes, and match them in order.
function(expect_faults file content)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/${file} "${content}")
  trireme_layering_faults(${SCRATCH} faults)
  list(LENGTH faults found)
  list(LENGTH ARGN expected)
  if(NOT found EQUAL expected)
    message(SEND_ERROR "${file}: expected ${expected} faults, found ${found}: ${faults}")
    return()
  endif()
  foreach(fault regex IN ZIP_LISTS faults ARGN)
    if(NOT fault MATCHES "${regex}")
      message(SEND_ERROR "${file}: fault '${fault}' does not match '${regex}'")
    endif()
  endforeach()
endfunction()

# What stands to the left is allowed, and so are the folder itself and third parties.
expect_faults(ir/plan/a.cpp "#include \"ir/plan/a.h\"\n#include \"ir/base/b.h\"\n#include <map>\n")
expect_faults(cli/a.cpp "#include \"planner/a.h\"\n#include \"runtime/a.h\"\n")
expect_faults(planner/a.cpp "#include \"cost_models/a.h\"\n#include <nlohmann/json.hpp>\n")
expect_faults(ir/dialect/a.h "#include \"mlir/IR/Types.h\"\n")
expect_faults(codegen/fuse/a.cpp "#include \"ir/dialect/a.h\"\n#include <llvm/ADT/STLExtras.h>\n")

# Against the arrows; the message names the file, the line and what is allowed.
expect_faults(ir/spec/a.h "#pragma once\n\n  #  include \"ir/plan/p.h\"  // why\n"
              "^ir/spec/a.h:3: includes ir/plan/p.h: ir/spec may use only: ir/base, ir/spec$")
expect_faults(ir/base/a.h "#include \"cli/c.h\"\n#include \"ir/spec/s.h\"\n" "a.h:1:" "a.h:2:")

# Folders that stand beside each other, and the exceptions.
expect_faults(ir/spec/a.h "#include \"ir/program/p.h\"\n" "ir/spec may use only")
expect_faults(planner/a.cpp "#include \"codegen/c.h\"\n" "planner may use only")
expect_faults(codegen/a.cpp "#include \"planner/p.h\"\n#include \"cost_models/c.h\"\n"
              "codegen may use only" "codegen may use only")
expect_faults(runtime/comm/a.cpp "#include \"ir/plan/p.h\"\n"
              "runtime may use only: ir/base, ir/program, runtime")

# MLIR outside its folders, in either spelling of an include.
expect_faults(planner/a.cpp "#include <mlir/IR/Types.h>\n#include \"llvm/ADT/STLExtras.h\"\n"
              "allowed only in: ir/dialect, codegen" "allowed only in: ir/dialect, codegen")

# Folders inside the planner have arrows of their own; a fault is told once.
expect_faults(planner/cuts/a.cpp "#include \"planner/q.h\"\n#include \"planner/space/s.h\"\n")
expect_faults(planner/cuts/a.cpp "#include \"planner/search/s.h\"\n" "^planner/cuts/a.cpp:1: .*planner/cuts may")
expect_faults(planner/a.cpp "#include \"planner/space/s.h\"\n" "planner may use only")
expect_faults(planner/other/a.cpp "#include \"planner/q.h\"\n#include \"cli/c.h\"\n" "planner may use only")

# A path that is not from the root would hide the folder that it names.
expect_faults(ir/base/a.h "#include \"../plan/p.h\"\n" "write the path from the root")
expect_faults(ir/base/a.h "#include \"a.h\"\n" "write the path from the root")
expect_faults(ir/base/a.h "#include \"tests/base/t.h\"\n" "nothing may include tests")

# Brackets and semicolons on the line do not hide what follows.
expect_faults(ir/base/a.h "#include <map>  // [a;\n#include \"cli/c.h\"  // ]\n" "a.h:2:")
