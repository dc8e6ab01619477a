// How the dialect's ops are written and read: what the generated parsers and printers call.
// Internal to ir/dialect.
#pragma once
#include <mlir/IR/OpImplementation.h>

namespace trireme::dialect {

// Prints `#trireme.dims<sequence, batch>` as `#sb`, declared at the top of the file.
class AliasInterface : public mlir::OpAsmDialectInterface {
 public:
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(mlir::Attribute attribute, llvm::raw_ostream& stream) const override;
};

// `attr-dict`; `trireme.names` is read from the names of the results, and shown only if it differs.
mlir::ParseResult parseNames(mlir::OpAsmParser& parser, mlir::NamedAttrList& attributes);
void printNames(mlir::OpAsmPrinter& printer, mlir::Operation* op, mlir::DictionaryAttr attributes);

// `(%argument: type, ...) { ops }`
mlir::ParseResult parseBody(mlir::OpAsmParser& parser, mlir::Region& body);
void printBody(mlir::OpAsmPrinter& printer, mlir::Operation* op, mlir::Region& body);

}  // namespace trireme::dialect
