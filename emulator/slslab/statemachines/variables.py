"""Replace parts of moto's variables and Choices: when Assign takes effect, and which Assign and Output apply.

documented: https://docs.aws.amazon.com/step-functions/latest/dg/workflow-variables.html: all fields of a state see the
variables as they were on its entry, and an Assign sets up to 256 KiB. state-choice.html: a matching rule has its own
Assign and Output; the state's own belong to Default.
"""

from typing import Any

from moto.stepfunctions.parser.asl.antlr.runtime.ASLParser import ASLParser

from slslab.statemachines.filters import compact
from slslab.statemachines.moto_patches import Original, failure, fits, replaces, runtime_failure, wraps


@replaces("component.common.assign.assign_decl.AssignDecl._eval_body")
def _assign(declaration: Any, env: Any) -> None:
    """Evaluate an Assign; its variables take effect at the end of the state."""
    values: dict[str, Any] = {}
    for binding in declaration.declaration_bindings:
        binding.eval(env=env)
        values |= env.stack.pop()
    store = env.variable_store
    for name in values.keys() & store._outer_scope.keys():
        # documented: workflow-variables.html: an inner scope can't assign it; the text is assumed.
        raise runtime_failure(env, f"Cannot assign to the variable '${name}' of an outer scope.")
    if not fits(values):
        # assumed: the error, and its text.
        cause = "The variables of an Assign exceed the maximum number of bytes service limit."
        raise failure(env, "States.DataLimitExceeded", cause)
    store.waiting = {**vars(store).get("waiting", {}), **values}


@replaces("component.common.assign.assign_template_binding.AssignTemplateBindingStringExpressionSimple._eval_value")
def _sample(binding: Any, env: Any) -> Any:
    env.next_field_name = f"{binding.identifier}.$"
    binding.string_expression_simple._eval_body(env)  # eval would name the field after its class
    return env.stack.pop()


@replaces("eval.variable_store.VariableStore.get_assigned_variables")
def _assigned(store: Any) -> dict[str, str]:
    """Return the variables that a state has assigned, as in its exit event: JSON texts by name."""
    waiting = vars(store).get("waiting", {})
    return {name: compact(waiting[name]) for name in sorted(waiting)}


@replaces("eval.variable_store.VariableStore.reset_tracing")
def _set(store: Any) -> None:
    store._inner_scope.update(vars(store).pop("waiting", {}))


@replaces("component.state.choice.state_choice.StateChoice._eval_state")
def _choose(state: Any, env: Any) -> None:
    """Evaluate the Assign and the Output of the first matching rule, or else the ones for Default."""
    for rule in state.choices_decl.rules:
        rule.comparison.eval(env)
        if env.stack.pop() is True:
            assign, output, following = rule.assign, rule.output, rule.next_stmt.name
            break
    else:
        if state.default_state is None:
            # documented: state-choice.html names States.NoChoiceMatched; cause assumed.
            cause = f"No choice rule matched in the state '{state.name}', and it has no Default"
            raise failure(env, "States.NoChoiceMatched", cause)
        assign, output, following = state.assign_decl, state.output, state.default_state.state_name
    for part in (assign, output):
        if part:
            part.eval(env)
    env.stack.append(following)


@replaces("component.state.choice.state_choice.StateChoice._eval_state_output")
def _lead_on(state: Any, env: Any) -> None:
    following = env.stack.pop()
    if state.output_path:
        state.output_path.eval(env)
    env.next_state_name = following


@wraps("parse.preprocessor.Preprocessor.visitChoice_rule_comparison_variable")
def _with_assign(original: Original, parsing: Any, rule: Any) -> Any:
    """Make a JSONPath rule keep its Assign, which moto drops."""
    made = original(parsing, rule)
    for part in rule.getTypedRuleContexts(ASLParser.Comparison_variable_stmtContext):
        if part.assign_decl() is not None:
            made.assign = parsing.visit(part.assign_decl())
    return made
