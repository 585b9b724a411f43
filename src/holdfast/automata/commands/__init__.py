"""The commands of `holdfast fst`, by what they are for; `holdfast.automata.cli` names them."""
