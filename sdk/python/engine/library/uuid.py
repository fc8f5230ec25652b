# Quern: a node that was made up before the snapshot would be that of every task.
import _quern as _quern_host

_quern_getnode, _quern_call = getnode, None


def getnode():
    global _node, _quern_call
    if _quern_call != _quern_host.call():
        _node, _quern_call = None, _quern_host.call()
    return _quern_getnode()
