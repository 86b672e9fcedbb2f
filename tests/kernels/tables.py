"""What the limit tests of the families share."""

from tileops.rules.device import DeviceFacts
from tileops.rules.interface import argument_findings, interface_of
from tileops.rules.table import RuleTable

H200 = DeviceFacts(90, "H200", 132, 232448)
A100 = DeviceFacts(80, None, 108, 166912)


class Asked:
    """Holds the table of an interface and answers for calls that differ from a base."""

    def __init__(self, implementations, **base):
        self.implementations = implementations
        self.request = next(iter(implementations.values())).request
        self.table = RuleTable("asked", self.request, {key: cls.declaration for key, cls in implementations.items()})
        self.base = base

    def call(self, facts=H200, **changes):
        """Returns the base call with some facts changed."""
        return self.request(device="cuda:0", stated=facts, **(self.base | changes))

    def reasons(self, key, facts=H200, **changes):
        """Returns why an implementation refuses, as texts."""
        verdicts = self.table.explain(self.call(facts, **changes)).verdicts
        (verdict,) = [verdict for verdict in verdicts if verdict.key == key]
        return [reason.text for reason in verdict.reasons]

    def winner(self, facts=H200, **changes):
        """Returns the key that is chosen."""
        return self.table.select(self.call(facts, **changes))

    def identity(self, key, facts=H200, **changes):
        """Returns the build identity of an implementation."""
        return self.implementations[key].entry_for(self.call(facts, **changes))[0]

    def holds(self, key, served, refused, why):
        """Asserts that a limit holds on both sides."""
        assert self.reasons(key, **served) == []
        texts = self.reasons(key, **refused)
        assert any(why in text for text in texts), texts

    def is_sound(self):
        """Asserts that the table is proved and that each implementation takes the interface's arguments."""
        report = self.table.check()
        assert not report.findings, report.findings
        for key, cls in self.implementations.items():
            assert argument_findings(interface_of(cls), cls, key) == ()
