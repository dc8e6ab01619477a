# MLIR and LLVM from Debian's packages, and the code that mlir-tblgen writes.
find_package(MLIR 19.1 REQUIRED CONFIG)
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION} from ${MLIR_DIR}")

# trireme_mlir: what a target that includes MLIR headers links. Both shared libraries must be named.
add_library(trireme_mlir INTERFACE)
target_include_directories(trireme_mlir SYSTEM INTERFACE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
target_link_libraries(trireme_mlir INTERFACE MLIR LLVM)

# Headers of MLIR that most files of the dialect and of codegen read; together they take seconds.
set(TRIREME_MLIR_PRECOMPILED
    <mlir/Dialect/Arith/IR/Arith.h> <mlir/Dialect/Func/IR/FuncOps.h>
    <mlir/Dialect/LLVMIR/LLVMDialect.h> <mlir/Dialect/SCF/IR/SCF.h>
    <mlir/Dialect/Vector/IR/VectorOps.h> <mlir/IR/Builders.h> <mlir/IR/BuiltinOps.h>
    <mlir/IR/DialectImplementation.h> <mlir/IR/OpImplementation.h> <mlir/Pass/PassManager.h>)

# trireme_tablegen(<td> <inc> <arguments>...)
#
# Generates <inc> from <td>, both relative to the root, and adds <inc> to TRIREME_TABLEGEN_OUTPUTS.
# LLVM's own function is not used: under Ninja it runs again on every build unless CMP0116 is OLD.
function(trireme_tablegen td inc)
  set(output ${TRIREME_GENERATED_DIR}/${inc})
  cmake_path(GET output PARENT_PATH directory)
  file(MAKE_DIRECTORY ${directory})
  list(TRANSFORM MLIR_INCLUDE_DIRS PREPEND "-I" OUTPUT_VARIABLE mlir_includes)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${MLIR_TABLEGEN_EXE} ${ARGN} -I${PROJECT_SOURCE_DIR} ${mlir_includes}
            ${PROJECT_SOURCE_DIR}/${td} --write-if-changed -o ${output} -d ${output}.d
    MAIN_DEPENDENCY ${PROJECT_SOURCE_DIR}/${td}
    DEPENDS ${MLIR_TABLEGEN_EXE}
    DEPFILE ${output}.d
    COMMENT "mlir-tblgen ${inc}"
    VERBATIM)
  set(TRIREME_TABLEGEN_OUTPUTS ${TRIREME_TABLEGEN_OUTPUTS} ${output} PARENT_SCOPE)
endfunction()

# trireme_tablegen_pair(<td> <stem> <declarations> <definitions> <arguments>...)
#
# <stem>.h.inc and <stem>.cpp.inc, in the folder of <td>.
macro(trireme_tablegen_pair td stem declarations definitions)
  set(pair_folder ${td})
  cmake_path(GET pair_folder PARENT_PATH pair_folder)
  trireme_tablegen(${td} ${pair_folder}/${stem}.h.inc ${declarations} ${ARGN})
  trireme_tablegen(${td} ${pair_folder}/${stem}.cpp.inc ${definitions} ${ARGN})
endmacro()

# The dialect. Each kind of definition comes from the file of its name, or from trireme_ops.td when
# there is no such file; interfaces are generated only from trireme_interfaces.td.
set(TRIREME_TABLEGEN_OUTPUTS "")
file(GLOB dialect_tds RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/ir/dialect/*.td)
if(dialect_tds)
  set(folder ir/dialect)
  foreach(kind ops dialect types attrs enums interfaces)
    set(td_${kind} ${folder}/trireme_ops.td)
    if(${folder}/trireme_${kind}.td IN_LIST dialect_tds)
      set(td_${kind} ${folder}/trireme_${kind}.td)
    endif()
  endforeach()
  trireme_tablegen_pair(${td_ops} trireme_ops -gen-op-decls -gen-op-defs)
  trireme_tablegen_pair(${td_dialect} trireme_dialect -gen-dialect-decls -gen-dialect-defs
                        -dialect=trireme)
  trireme_tablegen_pair(${td_types} trireme_types -gen-typedef-decls -gen-typedef-defs
                        -typedefs-dialect=trireme)
  trireme_tablegen_pair(${td_attrs} trireme_attrs -gen-attrdef-decls -gen-attrdef-defs
                        -attrdefs-dialect=trireme)
  trireme_tablegen_pair(${td_enums} trireme_enums -gen-enum-decls -gen-enum-defs)
  if(${folder}/trireme_interfaces.td IN_LIST dialect_tds)
    trireme_tablegen_pair(${td_interfaces} trireme_interfaces -gen-op-interface-decls
                          -gen-op-interface-defs)
  endif()
endif()
set(TRIREME_DIALECT_GENERATED ${TRIREME_TABLEGEN_OUTPUTS})

# codegen/passes.td declares registerCodegenPasses(); codegen/fuse/passes.td registerFusePasses().
set(TRIREME_TABLEGEN_OUTPUTS "")
file(GLOB_RECURSE pass_tds RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/codegen/passes.td)
foreach(td IN LISTS pass_tds)
  cmake_path(GET td PARENT_PATH folder)
  cmake_path(GET folder FILENAME phase)
  string(SUBSTRING ${phase} 0 1 initial)
  string(TOUPPER ${initial} initial)
  string(SUBSTRING ${phase} 1 -1 rest)
  set(phase ${initial}${rest})
  trireme_tablegen(${td} ${folder}/passes.h.inc -gen-pass-decls -name=${phase})
endforeach()
set(TRIREME_CODEGEN_GENERATED ${TRIREME_TABLEGEN_OUTPUTS})
