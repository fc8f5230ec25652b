-- The ERP's orders. A trigger enqueues each, in the transaction that inserts it.
CREATE TABLE orders (
  number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer text NOT NULL,
  amount   bigint NOT NULL
);
CREATE FUNCTION enqueue_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM quern.enqueue('book', json_build_object('number', NEW.number, 'amount', NEW.amount),
    jsonb_build_object('id', 'order-' || NEW.number, 'headers', jsonb_build_object('customer', NEW.customer)));
  RETURN NEW;
END $$;
CREATE TRIGGER enqueue_order AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION enqueue_order();
