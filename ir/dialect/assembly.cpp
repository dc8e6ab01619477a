#include "ir/dialect/assembly.h"

#include <mlir/IR/Builders.h>

#include <string>

#include "ir/dialect/dialect.h"

namespace trireme::dialect {

using mlir::NamedAttrList;
using mlir::OpAsmParser;
using mlir::OpAsmPrinter;
using mlir::Operation;
using mlir::ParseResult;

namespace {

// One per label, in the order of graph::Label: those of ir/program/op.h, where it has one.
constexpr llvm::StringLiteral kAliasLetters = "sbhgecfuvnoq";
static_assert(kAliasLetters.size() == graph::kNumLabels);

llvm::StringRef nameOf(graph::Label label) {
  const std::string_view name = graph::labelName(label);
  return {name.data(), name.size()};
}

// The names that the text gives to the results, `%x:2` being x and x again.
void addNames(OpAsmParser& parser, NamedAttrList& attributes) {
  if (attributes.get(kNames)) return;
  llvm::SmallVector<llvm::StringRef> names;
  for (size_t i = 0; i < parser.getNumResults(); ++i)
    names.push_back(parser.getResultName(static_cast<unsigned>(i)).first);
  attributes.set(kNames, parser.getBuilder().getStrArrayAttr(names));
}

bool namesAreThoseOfTheResults(OpAsmPrinter& printer, Operation* op) {
  const auto names = op->getAttrOfType<mlir::ArrayAttr>(kNames);
  if (!names || names.size() != op->getNumResults()) return false;
  for (const auto& [name, result] : llvm::zip(names, op->getResults())) {
    std::string printed;
    llvm::raw_string_ostream stream(printed);
    printer.printOperand(result, stream);
    const auto text = llvm::dyn_cast<mlir::StringAttr>(name);
    if (!text || printed != "%" + text.str()) return false;
  }
  return true;
}

void printAttributes(OpAsmPrinter& printer, Operation* op,
                     llvm::ArrayRef<mlir::NamedAttribute> attributes) {
  llvm::SmallVector<llvm::StringRef> hidden;
  if (namesAreThoseOfTheResults(printer, op)) hidden.push_back(kNames);
  printer.printOptionalAttrDict(attributes, hidden);
}

}  // namespace

AliasInterface::AliasResult AliasInterface::getAlias(mlir::Attribute attribute,
                                                     llvm::raw_ostream& stream) const {
  const auto dims = llvm::dyn_cast<DimsAttr>(attribute);
  if (!dims) return AliasResult::NoAlias;
  for (const graph::Label label : dims.getLabels())
    stream << kAliasLetters[static_cast<size_t>(label)];
  return AliasResult::OverridableAlias;
}

mlir::Attribute DimsAttr::parse(mlir::AsmParser& parser, mlir::Type) {
  llvm::SmallVector<graph::Label> labels;
  const auto parseLabel = [&]() -> ParseResult {
    const llvm::SMLoc loc = parser.getCurrentLocation();
    llvm::StringRef name;
    if (parser.parseKeyword(&name)) return mlir::failure();
    if (const auto label = graph::parseLabel({name.data(), name.size()})) {
      labels.push_back(*label);
      return mlir::success();
    }
    auto error = parser.emitError(loc) << "'" << name << "' is no dim; valid:";
    for (int i = 0; i < graph::kNumLabels; ++i) error << " " << nameOf(graph::Label(i));
    return error;
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::LessGreater, parseLabel)) return {};
  return get(parser.getContext(), labels);
}

void DimsAttr::print(mlir::AsmPrinter& printer) const {
  printer << "<";
  llvm::interleaveComma(getLabels(), printer,
                        [&](graph::Label label) { printer << nameOf(label); });
  printer << ">";
}

llvm::LogicalResult DimsAttr::verifyEncoding(
    llvm::ArrayRef<int64_t> shape, mlir::Type,
    llvm::function_ref<mlir::InFlightDiagnostic()> emitError) const {
  if (shape.size() == getLabels().size()) return mlir::success();
  return emitError() << getLabels().size() << " labels for a tensor of " << shape.size() << " dims";
}

ParseResult parseNames(OpAsmParser& parser, NamedAttrList& attributes) {
  if (parser.parseOptionalAttrDict(attributes)) return mlir::failure();
  addNames(parser, attributes);
  return mlir::success();
}

void printNames(OpAsmPrinter& printer, Operation* op, mlir::DictionaryAttr) {
  printAttributes(printer, op, llvm::to_vector(op->getDiscardableAttrs()));
}

ParseResult parseBody(OpAsmParser& parser, mlir::Region& body) {
  llvm::SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseArgumentList(arguments, OpAsmParser::Delimiter::Paren, /*allowType=*/true))
    return mlir::failure();
  // Names inside are of a scope of their own.
  return parser.parseRegion(body, arguments, /*enableNameShadowing=*/true);
}

void printBody(OpAsmPrinter& printer, Operation*, mlir::Region& body) {
  printer << "(";
  llvm::interleaveComma(body.getArguments(), printer, [&](mlir::BlockArgument argument) {
    printer.printRegionArgument(argument);
  });
  printer << ") ";
  printer.printRegion(body, /*printEntryBlockArgs=*/false);
}

// In a segment values have places, not names: only results with labels are called as in the text.
ParseResult parseComputeOp(OpAsmParser& parser, mlir::OperationState& result) {
  llvm::SmallVector<OpAsmParser::UnresolvedOperand> operands;
  mlir::FunctionType type;
  const llvm::SMLoc operandsLoc = parser.getCurrentLocation();
  if (parser.parseOperandList(operands)) return mlir::failure();
  const llvm::SMLoc attributesLoc = parser.getCurrentLocation();
  if (parser.parseOptionalAttrDict(result.attributes)) return mlir::failure();
  const auto emitError = [&] {
    return parser.emitError(attributesLoc) << "'" << result.name << "' op ";
  };
  if (failed(result.name.verifyInherentAttrs(result.attributes, emitError)) ||
      parser.parseColonType(type) ||
      parser.resolveOperands(operands, type.getInputs(), operandsLoc, result.operands))
    return mlir::failure();
  result.addTypes(type.getResults());
  const bool isLabelled = llvm::any_of(type.getResults(), [](mlir::Type output) {
    const auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(output);
    return tensor && llvm::isa_and_nonnull<DimsAttr>(tensor.getEncoding());
  });
  if (isLabelled) addNames(parser, result.attributes);
  return mlir::success();
}

void printComputeOp(OpAsmPrinter& printer, Operation* op) {
  if (op->getNumOperands() > 0) printer << " " << op->getOperands();
  printAttributes(printer, op, op->getAttrs());
  printer << " : ";
  printer.printFunctionalType(op);
}

void nameResults(Operation* op, mlir::OpAsmSetValueNameFn setName) {
  const auto names = op->getAttrOfType<mlir::ArrayAttr>(kNames);
  if (!names || names.size() != op->getNumResults()) return;
  for (const auto& [name, result] : llvm::zip(names, op->getResults()))
    if (const auto text = llvm::dyn_cast<mlir::StringAttr>(name)) setName(result, text.getValue());
}

}  // namespace trireme::dialect
