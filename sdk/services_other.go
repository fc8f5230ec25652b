//go:build !wasip1

package sdk

// Without a host there is none of its services.

func hostLog(Level, string, string) error { return ErrNoHost }

func hostSave([]byte) error { return ErrNoHost }

func hostLoad() ([]byte, error) { return nil, ErrNoHost }

func hostConfig(string) (string, bool) { return "", false }

func hostSecret(string) ([]byte, error) { return nil, ErrNoHost }

func hostGet(string, string) ([]byte, error) { return nil, ErrNoHost }

func hostSet(string, string, []byte, int64) error { return ErrNoHost }

func hostDelete(string, string) (bool, error) { return false, ErrNoHost }

func hostIncrement(string, string, int64) (int64, error) { return 0, ErrNoHost }

func hostSwap(string, string, []byte, []byte, int64) ([]byte, error) { return nil, ErrNoHost }

func hostList(string, string, string, int) ([]string, error) { return nil, ErrNoHost }

func hostText(uint32) string { return "" }

func hostNumber(uint32) int64 { return 0 }

func hostCancelled() bool { return false }
