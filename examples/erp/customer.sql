-- The books of one customer. An order that is booked twice would show: bookings has no key.
CREATE TABLE bookings (number bigint NOT NULL, amount bigint NOT NULL);
CREATE TABLE balance (total bigint NOT NULL);
INSERT INTO balance VALUES (0);
